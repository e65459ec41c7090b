/** What the one who looks has chosen. */
import { kept, store } from "./store";

export type Theme = "system" | "light" | "dark";

const isOneOf =
  <T extends string>(...words: readonly T[]) =>
  (value: unknown): value is T =>
    (words as readonly unknown[]).includes(value);

export const theme = kept<Theme>("theme", "system", isOneOf("system", "light", "dark"));

/** `local` is the browser's time zone. */
export const zone = kept<"local" | "utc">("zone", "local", isOneOf("local", "utc"));

/** Whether what is shown renews itself. A new page always starts live. */
export const live = store(true);

export interface View {
  name: string;
  search: string;
}

const isViews = (value: unknown): value is View[] =>
  Array.isArray(value) &&
  value.every((view) => typeof view?.name === "string" && typeof view?.search === "string");

/** Searches of the jobs explorer that were given a name. */
export const views = kept<View[]>("views", [], isViews);

/** Sets the colours of the page, and keeps them set. */
export function followTheme(): void {
  const apply = () => {
    document.documentElement.dataset.theme = theme.get();
  };
  theme.subscribe(apply);
  apply();
}
