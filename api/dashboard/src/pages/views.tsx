import { DropdownMenu as Menu } from "radix-ui";
import { useState, type FormEvent } from "react";

import { parseSearch, searchText, type Search } from "@/lib/search";
import { views } from "@/lib/settings";
import { useStore } from "@/lib/store";
import { Button, IconButton } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Icon } from "@/ui/icons";

/** Searches that were given a name, kept in this browser. */
export function Views({ search, onChoose }: { search: Search; onChoose: (search: Search) => void }) {
  const all = useStore(views);
  const [naming, setNaming] = useState(false);
  const [name, setName] = useState("");
  const text = searchText(search);
  const save = (event: FormEvent) => {
    event.preventDefault();
    views.set([...all.filter((view) => view.name !== name.trim()), { name: name.trim(), search: text }]);
    setName("");
    setNaming(false);
  };
  return (
    <>
      <Menu.Root modal={false}>
        <Menu.Trigger asChild><Button icon="bookmark">Views</Button></Menu.Trigger>
        <Menu.Portal>
          <Menu.Content className="menu" align="end" sideOffset={6} collisionPadding={8}>
            {all.length === 0 ? <Menu.Label className="menu-label">No search is kept yet</Menu.Label> : null}
            {all.map((view) => (
              <Menu.Item key={view.name} className="menu-item" onSelect={() => {
                const parsed = parseSearch(view.search);
                if ("search" in parsed) onChoose(parsed.search);
              }}>
                <Icon name="bookmark" />
                <span className="clip">{view.name}</span>
                <code className="faint clip">{view.search}</code>
              </Menu.Item>
            ))}
            <Menu.Separator className="menu-line" />
            <Menu.Item className="menu-item" disabled={text === ""} onSelect={() => setNaming(true)}>
              <Icon name="plus" /> Keep this search
            </Menu.Item>
          </Menu.Content>
        </Menu.Portal>
      </Menu.Root>
      <Dialog open={naming} onClose={() => setNaming(false)} title="Keep this search">
        <form className="stack" onSubmit={save}>
          <p className="muted"><code>{text}</code></p>
          <div className="field">
            <label htmlFor="view-name">Name</label>
            <input id="view-name" className="input" value={name} maxLength={60} required autoFocus onChange={(event) => setName(event.target.value)} />
          </div>
          {all.length > 0 ? (
            <ul className="plain-list">
              {all.map((view) => (
                <li key={view.name} className="row apart">
                  <span className="clip">{view.name} <code className="faint">{view.search}</code></span>
                  <IconButton label={`Drop ${view.name}`} icon="trash" small onClick={() => views.set(all.filter((its) => its !== view))} />
                </li>
              ))}
            </ul>
          ) : null}
          <div className="row"><Button look="primary" type="submit" disabled={name.trim() === ""}>Keep it in this browser</Button></div>
        </form>
      </Dialog>
    </>
  );
}
