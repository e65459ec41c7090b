/** The API key of this browser. It goes into a header and nowhere else: no address, no cookie, no log. */
import { store } from "./store";

const NAME = "taskq.key";

function read(storage: () => Storage): string | null {
  try {
    return storage().getItem(NAME);
  } catch {
    return null;
  }
}

function write(storage: () => Storage, key: string | null): void {
  try {
    if (key === null) storage().removeItem(NAME);
    else storage().setItem(NAME, key);
  } catch {
    // It holds for as long as the page does.
  }
}

const tab = () => sessionStorage;
const browser = () => localStorage;

export const apiKey = store<string | null>(read(tab) ?? read(browser));

/** Set while the API asks for a key, or for another one. */
export const keyWanted = store<boolean>(false);

/** Keeps a key for this tab, or for this browser if `remember`; null forgets it everywhere. */
export function keepKey(key: string | null, remember = false): void {
  write(tab, remember ? null : key);
  write(browser, remember ? key : null);
  apiKey.set(key);
  if (key !== null) keyWanted.set(false);
}
