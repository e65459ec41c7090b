/** Reads Server-Sent Events out of text that comes in pieces. (A browser's own reader sends no key.) */

export interface ServerEvent {
  event: string;
  data: string;
}

export class EventParser {
  /** What to send as `Last-Event-ID`, to go on without a gap or a repeat. */
  lastId = "";
  /** When to come back after the connection broke (ms), as the server wishes. */
  retryMs = 2000;

  private rest = "";
  private event = "";
  private data: string[] = [];

  /** The events that a piece of text completes. */
  take(text: string): ServerEvent[] {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    const out: ServerEvent[] = [];
    for (const line of lines) {
      if (line === "") {
        if (this.data.length > 0) out.push({ event: this.event || "message", data: this.data.join("\n") });
        this.event = "";
        this.data = [];
      } else {
        this.field(line);
      }
    }
    return out;
  }

  private field(line: string): void {
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id" && !value.includes("\0")) this.lastId = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
  }
}
