// Keeps the board current. Without it the page loads itself again; nothing else is lost.
"use strict";
(() => {
  const root = document.documentElement;
  const live = document.getElementById("live");
  const at = root.dataset.up;
  const QUIET_MS = 20000; // A board comes every second, or every ten when each takes long to make.
  const AGAIN_MS = 5000;
  const RENEW_MS = 60000;
  let heard = Date.now();
  let fetched = 0;
  let state = "";

  // One polite announcement for each change, none for each second.
  const say = (kind, words) => {
    if (state === kind + words) return;
    state = kind + words;
    live.className = kind;
    live.textContent = words;
    document.body.classList.toggle("old", kind === "off");
  };

  // Makes `old` what `fresh` is, node by node: focus, selection, scrolling and what is unfolded stay.
  const patch = (old, fresh) => {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(document.importNode(fresh, true));
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes])
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const now = [...old.childNodes];
    const then = [...fresh.childNodes];
    then.forEach((node, index) => {
      if (index < now.length) patch(now[index], node);
      else old.append(document.importNode(node, true));
    });
    now.slice(then.length).forEach((node) => node.remove());
  };

  // Another style or script is in force. During an update page and stream may come from replicas of
  // two versions: it is not to load itself anew for ever.
  const renew = () => {
    const now = Date.now();
    if (now - (Number(sessionStorage.getItem("renewed")) || 0) < RENEW_MS) return;
    sessionStorage.setItem("renewed", now);
    location.reload();
  };

  const parsed = (html) => new DOMParser().parseFromString(html, "text/html");

  // The page as it is now: for what the stream does not bring, and where there is no stream.
  const load = async () => {
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    const fresh = parsed(await answer.text());
    if (fresh.documentElement.dataset.build !== root.dataset.build) renew();
    root.dataset.settings = fresh.documentElement.dataset.settings;
    document.title = fresh.title;
    for (const id of ["board", "settings"])
      patch(document.getElementById(id), fresh.getElementById(id));
    heard = Date.now();
  };

  const show = (board) => {
    heard = Date.now();
    if (board.build !== root.dataset.build) renew();
    document.title = board.title;
    patch(document.getElementById("board"), parsed(`<main id=board>${board.board}</main>`).getElementById("board"));
    say("on", "live");
    if (board.settings !== root.dataset.settings && heard - fetched > AGAIN_MS) {
      fetched = heard;
      load().catch(() => {}); // The next board tries again.
    }
  };

  const lost = () => {
    const since = new Date(heard).toLocaleTimeString();
    say("off", `no news since ${since}: the gateway does not answer, trying again`);
  };

  const watch = () => {
    const stream = new EventSource(`${at}status/events`);
    stream.addEventListener("board", (event) => show(JSON.parse(event.data)));
    stream.onerror = () => {
      // A stream that ended is opened again by the browser; one that was refused is not.
      if (stream.readyState !== EventSource.CLOSED) return Date.now() - heard > AGAIN_MS && lost();
      setTimeout(async () => {
        try {
          await load();
          say("", "not live (too many watch, or a proxy forbids it): loaded again every 5 s");
        } catch {
          lost();
        }
        watch();
      }, AGAIN_MS);
    };
  };

  setInterval(() => {
    if (state.startsWith("on") && Date.now() - heard > QUIET_MS) lost();
  }, 1000);
  watch();
})();
