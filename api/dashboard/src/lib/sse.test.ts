import { expect, it } from "vitest";

import { EventParser } from "./sse";

it("events come whole, however they are cut", () => {
  const text = 'retry: 500\n: \nid: 7-0\n\nevent: state\nid: 8-0\ndata: {"a":1}\ndata: {"b":2}\n\n: ping\n\nevent: log\ndata: x\n\n';
  for (const size of [1, 3, 10, 1000]) {
    const parser = new EventParser();
    const events = [];
    for (let i = 0; i < text.length; i += size) events.push(...parser.take(text.slice(i, i + size)));
    expect(events).toEqual([{ event: "state", data: '{"a":1}\n{"b":2}' }, { event: "log", data: "x" }]);
    expect(parser.lastId).toBe("8-0");
    expect(parser.retryMs).toBe(500);
  }
});

it("a mark moves the position on and shows nothing", () => {
  const parser = new EventParser();
  expect(parser.take(": \nid: 12-3\n\n")).toEqual([]);
  expect(parser.lastId).toBe("12-3");
});
