import { Dialog as Drawer } from "radix-ui";
import { Suspense, useEffect, useRef, useState } from "react";
import { Outlet, useLocation, useNavigation } from "react-router";

import { useSelf } from "@/api/may";
import { apiKey, keyWanted } from "@/lib/key";
import { live } from "@/lib/settings";
import { useStore } from "@/lib/store";
import { Button, IconButton } from "@/ui/button";
import { Icon } from "@/ui/icons";
import { Tip } from "@/ui/tip";

import { Help } from "./help";
import { KeyDialog } from "./key-dialog";
import { Palette } from "./palette";
import { Rail } from "./rail";
import { useShortcuts } from "./shortcuts";
import { Tools } from "./tools";

export function Shell() {
  const [palette, setPalette] = useState(false);
  const [menu, setMenu] = useState(false);
  const [help, setHelp] = useState(false);
  const main = useRef<HTMLElement>(null);
  const { pathname } = useLocation();
  const asked = useNavigation().state === "loading";
  useShortcuts({ palette: () => setPalette(true), help: () => setHelp(true) });
  useFocusOnPage(main, pathname);
  useEffect(() => setMenu(false), [pathname]);

  return (
    <div className="shell">
      <a className="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>To the content</a>
      <Rail />
      <div className="page">
        <header className="bar">
          <IconButton label="Menu" icon="menu" className="bar-menu" onClick={() => setMenu(true)} />
          <button type="button" className="search-button" onClick={() => setPalette(true)}>
            <Icon name="search" />
            <span className="clip">Go to a job, queue or page</span>
            <kbd aria-hidden="true">{isMac ? "⌘" : "Ctrl"} K</kbd>
          </button>
          <div className="bar-tools">
            <Limits />
            <LiveToggle />
            <Tools help={() => setHelp(true)} />
          </div>
        </header>
        <Banners />
        <main className="main" id="main" ref={main} tabIndex={-1} aria-busy={asked}>
          <Suspense><Outlet /></Suspense>
        </main>
      </div>
      <Drawer.Root open={menu} onOpenChange={setMenu}>
        <Drawer.Portal>
          <div className="veil" />
          <Drawer.Content className="drawer" aria-describedby={undefined}>
            <Drawer.Title className="hidden-text">Menu</Drawer.Title>
            <Rail />
          </Drawer.Content>
        </Drawer.Portal>
      </Drawer.Root>
      {palette ? <Palette onClose={() => setPalette(false)} /> : null}
      <Help open={help} onClose={() => setHelp(false)} />
      <KeyDialog />
    </div>
  );
}

export const isMac = /Mac|iP(hone|ad)/.test(navigator.platform);

/** A new page begins at its top, also for those who hear it. */
function useFocusOnPage(main: React.RefObject<HTMLElement | null>, pathname: string): void {
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    main.current?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }, [main, pathname]);
}

function LiveToggle() {
  const on = useStore(live);
  return (
    <Tip text={on ? "What you see renews itself. Pause it (p)" : "Nothing renews itself now. Go on (p)"}>
      <button type="button" className="live" data-on={on} aria-pressed={on} onClick={() => live.set(!on)}>
        <span className="live-dot" />
        {on ? "Live" : "Paused"}
      </button>
    </Tip>
  );
}

/** Where this browser's key may not do everything: what is left out is left out for that. */
function Limits() {
  const { data: its } = useSelf();
  if (!its || (its.scopes.includes("operate") && its.queues === null && its.job_types === null)) return null;
  const only = [its.queues ? `queues ${its.queues.join(", ")}` : "", its.job_types ? `job types ${its.job_types.join(", ")}` : ""].filter(Boolean);
  const text = `${its.name ? `The key ${its.name}` : "This key"} may: ${its.scopes.join(", ") || "nothing"}${only.length > 0 ? `; only ${only.join(" and ")}` : ""}`;
  return (
    <Tip text={text}>
      <span className="tag t-plain" tabIndex={0} role="note" aria-label={text}>
        <Icon name="keys" />{its.scopes.some((scope) => scope !== "read" && scope !== "payload") ? "Limited key" : "Read only"}
      </span>
    </Tip>
  );
}

function Banners() {
  const wanted = useStore(keyWanted);
  const key = useStore(apiKey);
  const online = useOnline();
  if (!online) return <div className="banner t-warn" role="status">This machine is offline: what you see is old.</div>;
  if (!wanted) return null;
  return (
    <div className="banner t-warn" role="status">
      <span>{key === null ? "This API wants a key." : "The API did not take this key."}</span>
      <Button small onClick={() => keyDialog()}>Enter a key</Button>
    </div>
  );
}

function keyDialog(): void {
  document.dispatchEvent(new CustomEvent("taskq:key"));
}

function useOnline(): boolean {
  const [online, setOnline] = useState(navigator.onLine);
  useEffect(() => {
    const look = () => setOnline(navigator.onLine);
    window.addEventListener("online", look);
    window.addEventListener("offline", look);
    return () => {
      window.removeEventListener("online", look);
      window.removeEventListener("offline", look);
    };
  }, []);
  return online;
}
