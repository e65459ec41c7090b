/** A line without axes: how a number went. */
export function Spark({ values, label, tone = "accent" }: { values: readonly number[]; label: string; tone?: string }) {
  const width = 96;
  const height = 26;
  const top = Math.max(...values, 1e-9);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, i) => `${(i * step).toFixed(1)},${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`);
  if (values.length < 2) return null;
  return (
    <svg className="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <polygon points={`0,${height} ${points.join(" ")} ${width},${height}`} fill={`var(--${tone})`} opacity="0.12" />
      <polyline points={points.join(" ")} fill="none" stroke={`var(--${tone})`} strokeWidth="1.4" strokeLinejoin="round" vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
