import { Dialog as Primitive } from "radix-ui";
import type { ReactNode } from "react";

import { IconButton } from "./button";

interface Props {
  open: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  foot?: ReactNode;
  wide?: boolean;
}

/**
 * A modal dialog. The veil is ours: the primitive's own would put a style element into the page, which
 * the content security policy refuses.
 */
export function Dialog({ open, onClose, title, children, foot, wide = false }: Props) {
  return (
    <Primitive.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Primitive.Portal>
        <div className="veil" />
        <Primitive.Content className={`dialog ${wide ? "wide" : ""}`} aria-describedby={undefined}>
          <div className="dialog-head">
            <Primitive.Title asChild><h2>{title}</h2></Primitive.Title>
            <IconButton label="Close" icon="close" onClick={onClose} />
          </div>
          <div className="dialog-body">{children}</div>
          {foot ? <div className="dialog-foot">{foot}</div> : null}
        </Primitive.Content>
      </Primitive.Portal>
    </Primitive.Root>
  );
}
