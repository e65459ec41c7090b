import { afterEach, expect, it, vi } from "vitest";

import { ApiError, ask, path } from "./client";
import { readJob, submitJob } from "./jobs";

afterEach(() => vi.unstubAllGlobals());

const answer = (body: string, status = 200, headers: Record<string, string> = {}) => vi.fn<typeof fetch>(async () => new Response(body, { status, headers }));

it("a payload goes from the answer to the request as it stands", async () => {
  const text = '{"big": 12345678901234567890, "10": 1, "2": [1.10, -0.0]}';
  const job = readJob(`{"id":"q:1","state":"failed","error":{"type":"E","message":7},"payload":${text},"result":null}`);
  expect(job.payload).toBe(text);
  expect(job.result).toBeNull();
  expect(job.error).toEqual({ type: "E", message: "7", traceback: null });
  const fetch = answer(`{"id":"q:2","payload":{},"result":null,"error":null}`, 201);
  vi.stubGlobal("fetch", fetch);
  await submitJob({ job_type: "t", queue: "q", payload: text, priority: 3, delay: undefined }, "key-1");
  const [url, options] = fetch.mock.calls[0] as [string, RequestInit];
  expect(url).toBe(`${location.origin}/jobs`);
  expect(options.body).toBe(`{"job_type":"t","queue":"q","priority":3,"payload":${text}}`);
  expect(options.headers).toMatchObject({ "Idempotency-Key": "key-1", "Content-Type": "application/json" });
});

it("what is stored but is no JSON is shown as text", () => {
  expect(readJob('{"id":"q:1","error":null,"payload":null,"payload_raw":"<oops","result":null}').payload).toBe("<oops");
});

it("what a key may not see is told from what is not kept", () => {
  expect(readJob('{"id":"q:1","error":null}')).toMatchObject({ hidden: true, payload: null, result: null });
  expect(readJob('{"id":"q:1","error":null,"payload":null,"result":null}').hidden).toBe(false);
});

it("a refusal carries its code, and a broken answer is told", async () => {
  vi.stubGlobal("fetch", answer('{"code":"wrong_state","detail":"it runs"}', 409, { "retry-after": "3" }));
  await expect(ask("POST", "/x")).rejects.toMatchObject({ status: 409, code: "wrong_state", message: "it runs", retryAfter: 3 });
  vi.stubGlobal("fetch", answer("<h1>", 502));
  await expect(ask("GET", "/x")).rejects.toMatchObject({ status: 502, code: "http_error" });
  vi.stubGlobal("fetch", vi.fn(async () => Promise.reject(new TypeError("failed"))));
  await expect(ask("GET", "/x")).rejects.toBeInstanceOf(ApiError);
});

it("a name in a path cannot leave its place", () => {
  expect(path`/queues/${"../keys?x=1#y"}/purge`).toBe("/queues/..%2Fkeys%3Fx%3D1%23y/purge");
});
