// The virtual host that somebody has chosen: lists of other pages begin with it, until another one is chosen.

const KEPT = "amqpd-vhost";

/** Null for all. */
export function keptVhost() {
  try {
    return sessionStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

export function keepVhost(name) {
  try {
    if (name) sessionStorage.setItem(KEPT, name);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // It is not kept, then.
  }
}
