import { Dialog as Primitive } from "radix-ui";
import { useRef, type ReactNode } from "react";

import { Icon } from "./icons";

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
  const content = useRef<HTMLDivElement>(null);
  const focus = (event: Event) => {
    event.preventDefault();
    // The first thing to fill in; else the dialog itself, so that Enter does nothing by accident.
    const field = content.current?.querySelector<HTMLElement>(".dialog-body :is(input, textarea, select)");
    (field ?? content.current)?.focus();
  };
  return (
    <Primitive.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Primitive.Portal>
        <div className="veil" />
        <Primitive.Content className={`dialog ${wide ? "wide" : ""}`} aria-describedby={undefined} ref={content} onOpenAutoFocus={focus}>
          <div className="dialog-head">
            <Primitive.Title asChild><h2>{title}</h2></Primitive.Title>
            <button type="button" className="button quiet icon-only" aria-label="Close" title="Close" onClick={onClose}><Icon name="close" /></button>
          </div>
          <div className="dialog-body">{children}</div>
          {foot ? <div className="dialog-foot">{foot}</div> : null}
        </Primitive.Content>
      </Primitive.Portal>
    </Primitive.Root>
  );
}
