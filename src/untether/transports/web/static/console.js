// The console works without this file. It adds: keys, following the end, clearing the box, the word on a lost connection.
"use strict";

(() => {
  const page = () => document.getElementById("page");
  const box = () => document.querySelector("#box textarea");
  const help = document.getElementById("help");
  const firstSeen = new WeakMap(); // request cards: when they appeared

  // ------------------------------------------------------------------------------------------ requests, by key

  const inView = (card) => {
    const { top, bottom } = card.getBoundingClientRect();
    return bottom > 0 && top < window.innerHeight;
  };

  const noteCards = () => {
    for (const card of document.querySelectorAll(".ask"))
      if (!firstSeen.has(card)) firstSeen.set(card, performance.now());
  };

  const decide = (which) => {
    const card = [...document.querySelectorAll(".ask")].find(inView);
    // A card that slid under the finger this moment has not been read.
    if (!card || performance.now() - (firstSeen.get(card) ?? Infinity) < 400) return;
    card.querySelector(`form.${which}`)?.requestSubmit(); // a question has no plain answers
  };

  // ------------------------------------------------------------------------------------------------------ keys

  document.addEventListener("keydown", (event) => {
    const writing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape") {
      writing?.blur();
      return;
    }
    if (writing) {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && writing === box()) {
        event.preventDefault();
        writing.form.requestSubmit();
      }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || help?.open) return;
    const keys = {
      a: () => decide("approve"),
      d: () => decide("deny"),
      "/": () => box()?.focus(),
      "?": () => help?.showModal(),
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  });

  const showHelpButtons = () => {
    for (const button of document.querySelectorAll("[data-help]")) button.hidden = false;
  };
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-help]")) help?.showModal();
  });

  // -------------------------------------------------------------------------------- staying where the reader is

  const atEnd = () => document.documentElement.scrollHeight - window.scrollY - window.innerHeight < 80;
  const toEnd = () => window.scrollTo({ top: document.documentElement.scrollHeight });
  let following = false;

  document.addEventListener("htmx:before:swap", () => {
    following = document.body.classList.contains("run") && atEnd();
  });
  document.addEventListener("htmx:after:swap", () => {
    noteCards();
    showHelpButtons();
    if (following) toEnd();
  });

  // ------------------------------------------------------------------------------------------ what a form brings

  document.addEventListener("htmx:after:request", (event) => {
    const { sourceElement: form, response } = event.detail.ctx;
    if (!form?.matches?.("form")) return;
    htmx.trigger(page(), "htmx:abort"); // a look that began earlier would show the state before
    if (response.status >= 400) return;
    if (form.matches("[data-clear]")) {
      form.reset();
      following = true;
    }
  });

  // ------------------------------------------------------------------------------------------------- connection

  const connected = (yes) => document.documentElement.classList.toggle("offline", !yes);
  document.addEventListener("htmx:sse:error", () => connected(false));
  document.addEventListener("htmx:sse:after:connection", () => connected(true));

  noteCards();
  showHelpButtons();
  if (location.hash === "#end") toEnd();
})();
