// What may never stand in the page, whatever was said: a list of what does.
() => {
  const wrong = [];
  for (const node of document.querySelectorAll("*")) {
    const tag = node.tagName.toLowerCase();
    if (["iframe", "object", "embed", "base", "frame", "applet", "portal", "foreignobject", "use", "animate", "set"].includes(tag)) wrong.push(tag);
    if (tag === "script" && !node.src.startsWith(location.origin + "/page/")) wrong.push(node.outerHTML);
    if (tag === "link" && !node.href.startsWith(location.origin + "/page/")) wrong.push(node.outerHTML);
    if (tag === "style" || (tag === "meta" && node.httpEquiv)) wrong.push(node.outerHTML);
    for (const { name, value } of node.attributes) {
      if (/^on/i.test(name)) wrong.push(`${tag} ${name}`);
      if (["href", "src", "action", "formaction", "xlink:href", "srcset", "data", "poster", "ping"].includes(name)) {
        const to = new URL(value, location.href);
        if (tag === "a" ? !["http:", "https:", "mailto:", "blob:"].includes(to.protocol) : !(to.origin === location.origin || ["blob:", "data:"].includes(to.protocol))) wrong.push(`${tag} ${name}=${value}`);
        if (to.protocol === "data:" && !/^data:image\/(png|jpeg|gif|webp)[;,]/.test(value)) wrong.push(`${tag} ${name}=${value.slice(0, 60)}`);
        if (tag === "a" && to.origin !== location.origin && ["http:", "https:"].includes(to.protocol) && !(node.rel || "").includes("noopener")) wrong.push(`${value} without noopener`);
      }
    }
  }
  return wrong;
}
