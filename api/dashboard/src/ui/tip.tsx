import { Tooltip } from "radix-ui";
import type { ReactElement } from "react";

/** A tooltip: says more about what it surrounds, for pointer and keyboard. */
export function Tip({ text, children }: { text: string; children: ReactElement }) {
  return (
    <Tooltip.Root>
      <Tooltip.Trigger asChild>{children}</Tooltip.Trigger>
      <Tooltip.Portal>
        <Tooltip.Content className="tooltip" sideOffset={6} collisionPadding={8}>{text}</Tooltip.Content>
      </Tooltip.Portal>
    </Tooltip.Root>
  );
}
