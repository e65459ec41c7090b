import { Command } from "cmdk";
import { Dialog } from "radix-ui";
import { useState } from "react";
import { useNavigate } from "react-router";

import { useMay } from "@/api/may";
import { useJobTypes, useQueues } from "@/api/queries";
import { STATES } from "@/api/types";
import { live, theme, zone } from "@/lib/settings";
import { FOR_ADMINS, to } from "@/lib/to";
import { Icon, StateIcon, type IconName } from "@/ui/icons";

const PAGES: readonly (readonly [string, string, IconName])[] = [
  ["Overview", to.overview, "overview"],
  ["Jobs", to.jobs(), "jobs"],
  ["Errors", to.errors, "errors"],
  ["Workers", to.workers, "workers"],
  ["Job types", to.types, "types"],
  ["Redis and doctor", to.server, "server"],
  ["API keys", to.keys, "keys"],
  ["Audit trail", to.audit, "audit"],
];

const JOB_ID = /^[a-z0-9][a-z0-9._-]*:[0-9A-HJKMNP-TV-Z]{26}$/i;

export function Palette({ onClose }: { onClose: () => void }) {
  return (
    <Dialog.Root open onOpenChange={(next) => !next && onClose()}>
      <Dialog.Portal>
        <div className="veil" />
        <Dialog.Content className="dialog palette" aria-describedby={undefined}>
          <Dialog.Title className="hidden-text">Go to</Dialog.Title>
          <Choices onClose={onClose} />
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function Choices({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const navigate = useNavigate();
  const queues = useQueues().data ?? [];
  const types = useJobTypes().data ?? [];
  const admin = useMay()("admin");
  const go = (where: string) => () => {
    onClose();
    void navigate(where);
  };
  const act = (what: () => void) => () => {
    onClose();
    what();
  };
  const id = text.trim();
  return (
    <Command label="Go to" loop filter={fits}>
      <div className="palette-input">
        <Icon name="search" />
        <Command.Input value={text} onValueChange={setText} placeholder="A job id, a queue, a job type, a page" />
      </div>
      <Command.List className="palette-list">
        <Command.Empty className="empty small">Nothing is called so. The whole id of a job opens it.</Command.Empty>
        {JOB_ID.test(id) ? (
          <Command.Item className="menu-item" value={id} onSelect={go(to.job(id))}>
            <Icon name="jobs" /> Open job <code className="clip">{id}</code>
          </Command.Item>
        ) : null}
        <Command.Group heading="Pages">
          {PAGES.filter(([, where]) => admin || !FOR_ADMINS.includes(where)).map(([name, where, icon]) => (
            <Command.Item key={where} className="menu-item" value={`page ${name}`} onSelect={go(where)}>
              <Icon name={icon} /> {name}
            </Command.Item>
          ))}
        </Command.Group>
        {queues.length > 0 ? (
          <Command.Group heading="Queues">
            {queues.map((queue) => (
              <Command.Item key={queue.name} className="menu-item" value={`queue ${queue.name}`} onSelect={go(to.queue(queue.name))}>
                <Icon name="queue" /> {queue.name}
              </Command.Item>
            ))}
          </Command.Group>
        ) : null}
        <Command.Group heading="Jobs by state">
          {STATES.map((state) => (
            <Command.Item key={state} className="menu-item" value={`jobs ${state}`} onSelect={go(to.jobs({ state }))}>
              <StateIcon state={state} /> {state}
            </Command.Item>
          ))}
        </Command.Group>
        {types.length > 0 ? (
          <Command.Group heading="Job types">
            {types.map((type) => (
              <Command.Item key={type.job_type} className="menu-item" value={`type ${type.job_type} submit`} onSelect={go(to.type(type.job_type))}>
                <Icon name="types" /> {type.job_type} <span className="faint">submit one, see its schema</span>
              </Command.Item>
            ))}
          </Command.Group>
        ) : null}
        <Command.Group heading="Here">
          <Command.Item className="menu-item" value="pause live" onSelect={act(() => live.set(!live.get()))}>
            <Icon name="pause" /> Pause or go on renewing
          </Command.Item>
          <Command.Item className="menu-item" value="theme dark light" onSelect={act(() => theme.set(isDark() ? "light" : "dark"))}>
            <Icon name="moon" /> Change between light and dark
          </Command.Item>
          <Command.Item className="menu-item" value="time zone utc" onSelect={act(() => zone.set(zone.get() === "utc" ? "local" : "utc"))}>
            <Icon name="globe" /> Change between UTC and the time here
          </Command.Item>
        </Command.Group>
      </Command.List>
    </Command>
  );
}

/** How well a choice fits what was typed: whole and from its beginning best. Letters far apart are no match. */
export function fits(value: string, typed: string): number {
  const name = value.toLowerCase();
  const words = typed.toLowerCase().trim().split(/\s+/);
  if (!words.every((word) => name.includes(word))) return 0;
  const [first = ""] = words;
  const at = name.indexOf(first);
  if (name.split(" ").includes(first)) return 1;
  return at === 0 || name[at - 1] === " " ? 0.8 : 0.4;
}

function isDark(): boolean {
  const its = theme.get();
  return its === "dark" || (its === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
}
