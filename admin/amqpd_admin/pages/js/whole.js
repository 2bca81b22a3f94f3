// The pages come in some seventy files. A style that does not come is asked for again; without one of the scripts
// there is nothing to see, and the whole page is loaded again. Who looks is told. Runs before the modules.
"use strict";

(function () {
  const KEY = "amqpd-loaded-again";
  const AGAIN_MAX = 3;
  const FIRST_WAIT_MS = 500;
  let failed = false;

  /** How often this page was loaded again by itself, or more than enough in a browser that keeps nothing. */
  function count(next) {
    try {
      if (next !== undefined) sessionStorage.setItem(KEY, String(next));
      return Number(sessionStorage.getItem(KEY));
    } catch {
      return AGAIN_MAX;
    }
  }

  function say(text, ...more) {
    const paragraph = document.createElement("p");
    paragraph.className = "noscript";
    paragraph.append(text, ...more);
    document.getElementById("app").replaceChildren(paragraph);
  }

  function again() {
    const link = document.createElement("a");
    link.href = location.pathname;
    link.textContent = "Load the page again";
    return link;
  }

  function loadAgain() {
    const so = count();
    if (so >= AGAIN_MAX) {
      say("A part of this page did not come from the broker. ", again());
      return;
    }
    say("A part of this page did not come from the broker: it is loaded again.");
    setTimeout(() => {
      count(so + 1);
      location.reload();
    }, FIRST_WAIT_MS * 2 ** so);
  }

  function scriptFailed() {
    if (failed) return;
    failed = true;
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", loadAgain);
    else loadAgain();
  }

  function styleFailed(link) {
    const so = Number(link.dataset.again ?? 0);
    if (so >= AGAIN_MAX) return;
    const next = link.cloneNode();
    next.dataset.again = String(so + 1);
    setTimeout(() => link.replaceWith(next), FIRST_WAIT_MS * 2 ** so);
  }

  // An error of loading does not bubble: it is caught on its way down.
  window.addEventListener("error", ({ target }) => {
    if (target instanceof HTMLScriptElement) scriptFailed();
    else if (target instanceof HTMLLinkElement) styleFailed(target);
  }, true);
  window.addEventListener("load", () => failed || count(0));
})();
