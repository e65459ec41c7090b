/** A chart over time, drawn by uPlot. What it shows stands beside it as text too. */
import "uplot/dist/uPlot.min.css";

import { useEffect, useRef } from "react";
import uPlot from "uplot";

import { short } from "@/lib/format";
import { theme, zone } from "@/lib/settings";
import { useStore } from "@/lib/store";

export interface Line {
  label: string;
  /** Name of a colour token. */
  colour: string;
  values: number[];
  filled?: boolean;
  dashed?: boolean;
}

interface Props {
  at: number[];
  lines: readonly Line[];
  label: string;
  height?: number;
}

export function Chart({ at, lines, label, height = 190 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const its = useStore(theme);
  const shown = useStore(zone);
  const names = lines.map((line) => line.label).join();

  useEffect(() => {
    const parent = box.current;
    if (parent === null) return undefined;
    const made = new uPlot(options(parent, lines, height, shown), [at, ...lines.map((line) => line.values)], parent);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height }));
    watch.observe(parent);
    const media = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => made.redraw(false);
    media.addEventListener("change", redraw);
    return () => {
      watch.disconnect();
      media.removeEventListener("change", redraw);
      made.destroy();
      plot.current = null;
    };
    // Values come by the effect below; these are what a chart is made of.
  }, [names, height, shown, its]); // eslint-disable-line

  useEffect(() => {
    plot.current?.setData([at, ...lines.map((line) => line.values)]);
  }, [at, lines]);

  return (
    <figure className="chart">
      <div ref={box} role="img" aria-label={label} />
      <figcaption>
        {lines.map((line) => (
          <span key={line.label} className="legend">
            <i className={line.dashed ? "dashed" : ""} style={{ color: `var(--${line.colour})` }} />
            {line.label} <b className="num">{short(line.values.at(-2) ?? 0)}</b>
          </span>
        ))}
        <span className="faint">a minute, in the last whole one</span>
      </figcaption>
    </figure>
  );
}

function options(parent: HTMLElement, lines: readonly Line[], height: number, zoned: "local" | "utc"): uPlot.Options {
  // A colour that follows the theme is only known where it is used.
  const colour = (name: string) => () => resolve(parent, `var(--${name})`);
  const axis: uPlot.Axis = {
    stroke: colour("text-3"), font: "11px 'Inter Variable', system-ui, sans-serif", ticks: { show: false },
    grid: { stroke: colour("line"), width: 1 },
  };
  return {
    width: parent.clientWidth, height, padding: [10, 18, 0, 0], legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    tzDate: (ts) => (zoned === "utc" ? uPlot.tzDate(new Date(ts * 1e3), "Etc/UTC") : new Date(ts * 1e3)),
    scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.12)] } },
    axes: [
      { ...axis, size: 28, space: 70, values: (_, ticks) => ticks.map((tick) => hour(tick, zoned)) },
      { ...axis, size: 44, space: 34, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) || tick < 1 ? short(tick) : "")) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label, stroke: colour(line.colour), width: 1.6, points: { show: false },
        ...(line.dashed ? { dash: [4, 4] } : {}),
        ...(line.filled ? { fill: () => resolve(parent, `color-mix(in srgb, var(--${line.colour}) 13%, transparent)`) } : {}),
      })),
    ],
  };
}

/** A colour of the style sheet as a canvas takes it. */
function resolve(parent: HTMLElement, value: string): string {
  const probe = document.createElement("i");
  probe.style.color = value;
  parent.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function hour(at: number, zoned: "local" | "utc"): string {
  return new Intl.DateTimeFormat("en-GB", {
    hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(zoned === "utc" ? { timeZone: "UTC" } : {}),
  }).format(new Date(at * 1000));
}
