import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { Tooltip } from "radix-ui";
import { beforeEach, expect, it, vi } from "vitest";

import { SearchBox } from "./search-box";

const onSearch = vi.fn();
const onId = vi.fn();
beforeEach(() => vi.clearAllMocks());

function shown() {
  render(
    <Tooltip.Provider>
      <SearchBox search={{}} known={{ queues: ["mail", "media"], types: ["send_email"] }} onSearch={onSearch} onId={onId} />
    </Tooltip.Provider>,
  );
  return screen.getByRole("combobox");
}

it("completes by keyboard", async () => {
  const box = shown();
  await userEvent.type(box, "queue:m");
  expect(screen.getAllByRole("option").map((option) => option.textContent)).toEqual(["queue:mail", "queue:media"]);
  await userEvent.keyboard("{ArrowDown}{ArrowDown}");
  expect(box.getAttribute("aria-activedescendant")).toBe(screen.getAllByRole("option")[1]!.id);
  await userEvent.keyboard("{Enter}");
  expect(onSearch).toHaveBeenCalledWith({ queue: "media" });
});

it("opens a job by its id, and tells what it does not understand", async () => {
  const box = shown();
  await userEvent.type(box, "mail:01M8MAX3KD7157X32MXV2HSRK7{Enter}");
  expect(onId).toHaveBeenCalledWith("mail:01M8MAX3KD7157X32MXV2HSRK7");
  await userEvent.clear(box);
  await userEvent.type(box, "nonsense{Enter}");
  expect(screen.getByRole("alert").textContent).toContain("nonsense");
  expect(onSearch).toHaveBeenCalledExactlyOnceWith({});
});
