import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { Tooltip } from "radix-ui";
import { expect, it, vi } from "vitest";

import { ApiError } from "@/api/client";

import { Confirm } from "./confirm";

const shown = (run: () => Promise<unknown>, onClose = () => undefined, typed?: string) =>
  render(
    <Tooltip.Provider>
      <Confirm open onClose={onClose} title="Purge mail?" action="Purge it" danger typed={typed} run={run}>All that wait.</Confirm>
    </Tooltip.Provider>,
  );

it("what is hard to undo has to be typed", async () => {
  const run = vi.fn(async () => undefined);
  const close = vi.fn();
  shown(run, close, "mail");
  const button = screen.getByRole("button", { name: "Purge it" }) as HTMLButtonElement;
  expect(button.disabled).toBe(true);
  await userEvent.type(screen.getByRole("textbox"), "mai");
  expect(button.disabled).toBe(true);
  await userEvent.type(screen.getByRole("textbox"), "l");
  await userEvent.click(button);
  expect(run).toHaveBeenCalledOnce();
  expect(close).toHaveBeenCalledOnce();
});

it("a refusal is shown and the question stays", async () => {
  const close = vi.fn();
  shown(async () => Promise.reject(new ApiError(409, "wrong_state", "it has ended")), close);
  await userEvent.click(screen.getByRole("button", { name: "Purge it" }));
  expect((await screen.findByRole("alert")).textContent).toContain("it has ended");
  expect(close).not.toHaveBeenCalled();
});
