import { DropdownMenu as Menu } from "radix-ui";

import { apiKey, keepKey } from "@/lib/key";
import { theme, zone, type Theme } from "@/lib/settings";
import { useStore } from "@/lib/store";
import { IconButton } from "@/ui/button";
import { Icon, type IconName } from "@/ui/icons";
import { toast } from "@/ui/toast";

const THEMES: readonly (readonly [Theme, IconName, string])[] = [
  ["system", "screen", "As the system"],
  ["light", "sun", "Light"],
  ["dark", "moon", "Dark"],
];

/** Theme, time zone and key. */
export function Tools({ help }: { help: () => void }) {
  const its = useStore(theme);
  const shown = useStore(zone);
  const key = useStore(apiKey);
  return (
    <Menu.Root modal={false}>
      <Menu.Trigger asChild>
        <IconButton label="Settings" icon="more" />
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Content className="menu" align="end" sideOffset={6} collisionPadding={8}>
          <Menu.Label className="menu-label">Theme</Menu.Label>
          <Menu.RadioGroup value={its} onValueChange={(value) => theme.set(value as Theme)}>
            {THEMES.map(([value, icon, name]) => (
              <Menu.RadioItem key={value} value={value} className="menu-item">
                <Icon name={icon} />
                {name}
                <Menu.ItemIndicator asChild><span className="tick"><Icon name="check" /></span></Menu.ItemIndicator>
              </Menu.RadioItem>
            ))}
          </Menu.RadioGroup>
          <Menu.Separator className="menu-line" />
          <Menu.Label className="menu-label">Times</Menu.Label>
          <Menu.RadioGroup value={shown} onValueChange={(value) => zone.set(value === "utc" ? "utc" : "local")}>
            <Menu.RadioItem value="local" className="menu-item">
              <Icon name="globe" />
              Here ({Intl.DateTimeFormat().resolvedOptions().timeZone})
              <Menu.ItemIndicator asChild><span className="tick"><Icon name="check" /></span></Menu.ItemIndicator>
            </Menu.RadioItem>
            <Menu.RadioItem value="utc" className="menu-item">
              <Icon name="globe" />
              UTC
              <Menu.ItemIndicator asChild><span className="tick"><Icon name="check" /></span></Menu.ItemIndicator>
            </Menu.RadioItem>
          </Menu.RadioGroup>
          <Menu.Separator className="menu-line" />
          <Menu.Item className="menu-item" onSelect={() => document.dispatchEvent(new CustomEvent("taskq:key"))}>
            <Icon name="keys" />
            {key === null ? "Enter an API key" : "Use another API key"}
          </Menu.Item>
          {key === null ? null : (
            <Menu.Item
              className="menu-item"
              onSelect={() => {
                keepKey(null);
                toast("good", "The key is forgotten");
                location.reload();
              }}
            >
              <Icon name="close" />
              Forget the API key
            </Menu.Item>
          )}
          <Menu.Separator className="menu-line" />
          <Menu.Item className="menu-item" onSelect={help}>
            <Icon name="info" />
            Keyboard
            <kbd className="tick">?</kbd>
          </Menu.Item>
        </Menu.Content>
      </Menu.Portal>
    </Menu.Root>
  );
}
