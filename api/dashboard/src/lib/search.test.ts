import { expect, it } from "vitest";

import { completions, parseSearch, searchOf, searchText } from "./search";

const known = { queues: ["mail", "media", "default"], types: ["send_email", "print"] };

it("qualifiers become parameters and back", () => {
  const parsed = parseSearch(" queue:mail  state:failed type:send_email ");
  expect(parsed).toEqual({ search: { queue: "mail", state: "failed", job_type: "send_email" }, wrong: null });
  expect(searchText({ queue: "mail", job_type: "print" })).toBe("queue:mail type:print");
  expect(searchOf(new URLSearchParams("queue=mail&state=nope"))).toEqual({ queue: "mail", state: undefined, job_type: undefined });
});

it("an id is a job", () => {
  expect(parseSearch("mail:01M8MAX3KD7157X32MXV2HSRK7")).toEqual({ id: "mail:01M8MAX3KD7157X32MXV2HSRK7" });
});

it("what is not understood is told", () => {
  expect(parseSearch("hello")).toMatchObject({ wrong: expect.stringContaining("hello") });
  expect(parseSearch("state:lost")).toMatchObject({ wrong: expect.stringContaining("lost") });
  expect(parseSearch("")).toEqual({ search: {}, wrong: null });
});

it("words are completed", () => {
  expect(completions("", known)).toEqual(["queue:", "state:", "type:"]);
  expect(completions("queue:mail st", known)).toEqual(["queue:mail state:"]);
  expect(completions("queue:m", known)).toEqual(["queue:mail", "queue:media"]);
  expect(completions("queue:mail type:", known)).toEqual(["queue:mail type:send_email", "queue:mail type:print"]);
});
