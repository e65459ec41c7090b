import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";

import type { Job } from "@/api/types";

import { StateDiagram, visited } from "./state-diagram";

const job = (more: Partial<Job>): Job => ({ state: "queued", attempts: 0, failures: 0, history: [], created_at: null, eligible_at: null, ...more }) as Job;

it("the way of a job is told from what is known", () => {
  expect([...visited(job({}))]).toEqual(["queued"]);
  expect(visited(job({ state: "scheduled" }))).toEqual(new Set(["scheduled"]));
  expect(visited(job({ state: "failed", attempts: 3, failures: 3 }))).toEqual(new Set(["failed", "queued", "running", "retrying"]));
});

it("it is told in words too", () => {
  render(<StateDiagram job={job({ state: "succeeded", attempts: 1 })} />);
  expect(screen.getByRole("img").getAttribute("aria-label")).toBe("The job is succeeded. It has been: succeeded, queued, running.");
});
