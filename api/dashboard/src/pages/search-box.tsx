import { useId, useState, type KeyboardEvent } from "react";

import { completions, parseSearch, searchText, type Known, type Search } from "@/lib/search";
import { IconButton } from "@/ui/button";
import { Icon } from "@/ui/icons";

interface Props {
  search: Search;
  known: Known;
  onSearch: (search: Search) => void;
  onId: (id: string) => void;
}

/** Takes qualifiers, and completes them. */
export function SearchBox({ search, known, onSearch, onId }: Props) {
  const given = searchText(search);
  const [text, setText] = useState(given);
  const [shownFor, setShownFor] = useState(given);
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const [wrong, setWrong] = useState<string | null>(null);
  const id = useId();
  if (shownFor !== given) {
    // Somebody else has changed the search: a tab, a saved view, the browser's back.
    setShownFor(given);
    setText(given);
    setWrong(null);
  }
  const found = open ? completions(text, known) : [];

  const submit = (whole: string) => {
    const parsed = parseSearch(whole);
    if ("id" in parsed) return onId(parsed.id);
    setWrong(parsed.wrong);
    if (parsed.wrong === null) {
      setOpen(false);
      onSearch(parsed.search);
    }
  };
  const choose = (whole: string) => {
    setAt(-1);
    if (whole.endsWith(":")) return setText(whole);
    setText(`${whole} `);
    submit(whole);
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setOpen(true);
      setAt((now) => Math.max(-1, Math.min(found.length - 1, now + step)));
    } else if (event.key === "Escape") {
      setOpen(false);
    } else if (event.key === "Enter" || (event.key === "Tab" && at >= 0)) {
      event.preventDefault();
      const chosen = found[at];
      if (chosen === undefined) submit(text);
      else choose(chosen);
    }
  };

  return (
    <div className="search-box">
      <div className="search-field">
        <Icon name="search" />
        <input
          className="input mono" role="combobox" aria-label="Search jobs" aria-expanded={found.length > 0} aria-controls={`${id}-list`}
          aria-activedescendant={at >= 0 ? `${id}-${at}` : undefined} aria-autocomplete="list" aria-invalid={wrong !== null}
          aria-describedby={wrong === null ? undefined : `${id}-wrong`} placeholder="queue:mail state:failed type:send_email, or a job's id"
          value={text} spellCheck={false} autoComplete="off" autoCapitalize="off"
          onFocus={() => setOpen(true)} onBlur={() => setOpen(false)} onKeyDown={press}
          onChange={(event) => {
            setText(event.target.value);
            setOpen(true);
            setAt(-1);
            setWrong(null);
            if (event.target.value.trim() === "") onSearch({});
          }}
        />
        {text === "" ? null : <IconButton label="Clear the search" icon="close" small onClick={() => { setText(""); onSearch({}); setWrong(null); }} />}
      </div>
      <ul className="menu search-menu" id={`${id}-list`} role="listbox" aria-label="Completions" hidden={found.length === 0}>
        {found.map((whole, i) => (
          // A pointer must not take the focus from the field before it has chosen.
          <li key={whole} id={`${id}-${i}`} role="option" aria-selected={i === at} className="menu-item mono"
            onMouseDown={(event) => { event.preventDefault(); choose(whole); }}>
            {whole.slice(whole.search(/\S*$/))}
          </li>
        ))}
      </ul>
      {wrong === null ? null : <p className="wrong" id={`${id}-wrong`} role="alert">{wrong}</p>}
    </div>
  );
}
