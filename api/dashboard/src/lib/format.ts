/** Numbers, durations and times as people read them. */

const INTEGER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** `1204331` -> `1,204,331`. */
export const count = (value: number): string => INTEGER.format(value);

/** `1204331` -> `1.2M`; exact below ten thousand. */
export function compact(value: number): string {
  if (Math.abs(value) < 10_000) return INTEGER.format(value);
  for (const [unit, size] of [["B", 1e9], ["M", 1e6], ["k", 1e3]] as const) {
    if (Math.abs(value) >= size) {
      const scaled = value / size;
      return `${scaled < 100 ? scaled.toFixed(1).replace(/\.0$/, "") : INTEGER.format(scaled)}${unit}`;
    }
  }
  return INTEGER.format(value);
}

/** A rate or share: at most three digits that say something. */
export function short(value: number): string {
  if (value === 0) return "0";
  if (Math.abs(value) < 0.01) return "<0.01";
  if (Math.abs(value) < 10) return String(Number(value.toFixed(2)));
  return Math.abs(value) < 100 ? String(Number(value.toFixed(1))) : compact(Math.round(value));
}

/** `0.0312` -> `3.1 %`. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.1) return "<0.1 %";
  return `${value >= 10 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} %`;
}

/** Milliseconds as the two largest units that say something: `740 ms`, `4.2 s`, `3 min 12 s`, `2 h 5 min`. */
export function duration(ms: number): string {
  const positive = Math.max(0, ms);
  if (positive < 1) return positive === 0 ? "0 s" : "<1 ms";
  if (positive < 1000) return `${Math.round(positive)} ms`;
  const seconds = positive / 1000;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(seconds / 3600);
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

function two(many: number, unit: string, few: number, smaller: string): string {
  return few === 0 || many >= 100 ? `${many} ${unit}` : `${many} ${unit} ${few} ${smaller}`;
}

/** The same with one unit, for where there is little room: `34 min`, `2.1 h`. */
export function brief(ms: number): string {
  if (ms < 99_500) return duration(ms);
  if (ms < 5_940_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 170_000_000) return `${Number((ms / 3_600_000).toFixed(1))} h`;
  return `${Number((ms / 86_400_000).toFixed(1))} d`;
}

const BYTES = ["B", "kB", "MB", "GB", "TB"] as const;

export function bytes(value: number): string {
  let unit = 0;
  let scaled = value;
  while (scaled >= 1000 && unit < BYTES.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? scaled : Number(scaled.toFixed(scaled < 10 ? 1 : 0))} ${BYTES[unit]}`;
}

export type Zone = "local" | "utc";

const formats = new Map<string, Intl.DateTimeFormat>();

function formatter(zone: Zone, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const name = zone + JSON.stringify(options);
  let found = formats.get(name);
  if (found === undefined) {
    found = new Intl.DateTimeFormat("en-GB", { ...options, ...(zone === "utc" ? { timeZone: "UTC" } : {}) });
    formats.set(name, found);
  }
  return found;
}

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" } as const;
const DAY = { day: "numeric", month: "short" } as const;

/** `19:01:01`, with the day where it is not today, with the year where it is not this one. */
export function clock(at: Date, zone: Zone, now: Date = new Date(), ms = false): string {
  const options: Intl.DateTimeFormatOptions = ms ? { ...CLOCK, fractionalSecondDigits: 3 } : CLOCK;
  const time = formatter(zone, options).format(at);
  const day = formatter(zone, { ...DAY, year: "numeric" });
  if (day.format(at) === day.format(now)) return time;
  const sameYear = formatter(zone, { year: "numeric" });
  const shown = sameYear.format(at) === sameYear.format(now) ? formatter(zone, DAY) : day;
  return `${shown.format(at)}, ${time}`;
}

/** Everything about a time, for a tooltip: `Sun 29 Nov 2026, 19:01:01.740 UTC`. */
export function exactly(at: Date, zone: Zone): string {
  const options = {
    ...CLOCK, ...DAY, weekday: "short", year: "numeric", fractionalSecondDigits: 3, timeZoneName: "short",
  } as const;
  return formatter(zone, options).format(at);
}

/** `4 s ago`, `in 3 min 12 s`, `now`. */
export function relative(at: number, now: number): string {
  const away = at - now;
  if (Math.abs(away) < 1000) return "now";
  const whole = Math.floor(Math.abs(away) / 1000) * 1000;
  const text = duration(whole);
  return away < 0 ? `${text} ago` : `in ${text}`;
}

/** The plural of a counted word: `1 job`, `3 jobs`. */
export const many = (value: number, one: string, more = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : more}`;
