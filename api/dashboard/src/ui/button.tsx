import type { ButtonHTMLAttributes, ReactNode } from "react";
import { Link, type To } from "react-router";

import { Icon, type IconName } from "./icons";
import { Tip } from "./tip";

interface Look {
  look?: "primary" | "quiet" | "danger" | "danger primary";
  small?: boolean;
  icon?: IconName;
  busy?: boolean;
}

type ButtonProps = Look & ButtonHTMLAttributes<HTMLButtonElement>;

export function Button({ look, small, icon, busy, children, className = "", disabled, ...rest }: ButtonProps) {
  return (
    <button
      type="button" {...rest} disabled={disabled || busy} aria-busy={busy || undefined}
      className={`button ${look ?? ""} ${small ? "small" : ""} ${className}`}
    >
      {busy ? <Icon name="retry" className="spin" /> : icon ? <Icon name={icon} /> : null}
      {children}
    </button>
  );
}

/** A button that shows only an icon: its name is its tooltip and what is read aloud. */
export function IconButton({ label, icon, small, look = "quiet", className = "", ...rest }: ButtonProps & { label: string; icon: IconName }) {
  return (
    <Tip text={label}>
      <button
        type="button" aria-label={label} {...rest}
        className={`button icon-only ${look} ${small ? "small" : ""} ${className}`}
      >
        <Icon name={icon} />
      </button>
    </Tip>
  );
}

export function ButtonLink({ to, look, small, icon, children }: Look & { to: To; children: ReactNode }) {
  return (
    <Link to={to} className={`button ${look ?? ""} ${small ? "small" : ""}`}>
      {icon ? <Icon name={icon} /> : null}
      {children}
    </Link>
  );
}
