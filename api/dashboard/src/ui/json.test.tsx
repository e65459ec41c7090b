import { render, screen } from "@testing-library/react";
import { Tooltip } from "radix-ui";
import { expect, it } from "vitest";

import { Json } from "./json";

const shown = (text: string) =>
  render(<Tooltip.Provider><Json text={text} label="Payload" /></Tooltip.Provider>);

it("text is text, with every digit", () => {
  const { container } = shown('{"<img src=x onerror=alert(1)>":12345678901234567890}');
  expect(container.querySelector("img")).toBeNull();
  expect(screen.getByRole("region").textContent).toBe('{\n  "<img src=x onerror=alert(1)>": 12345678901234567890\n}');
});

it("what is no JSON is shown as it is", () => {
  shown("{oops");
  expect(screen.getByRole("region").textContent).toBe("{oops");
});

it("of a very large text only the beginning is shown at first", () => {
  shown(`"${"x".repeat(400_000)}"`);
  expect(screen.getByRole("region").textContent!.length).toBe(200_000);
  expect(screen.getByRole("button", { name: "Show all" })).toBeTruthy();
});
