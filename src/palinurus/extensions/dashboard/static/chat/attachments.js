// Attachments: pictures as they are (large ones are made smaller), small text files as a fenced block in the message.

import { el, icon } from "../dom.js";
import { notify } from "../dialog.js";
import { bytes } from "../format.js";

const MOST_PICTURES = 8; // per message; the gateway has the same limit
const LARGE = 3_000_000; // bytes: a larger picture is made smaller before it is sent
const LONGEST_SIDE = 2_048;
const MOST_TEXT = 200_000;
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

export class Attachments {
  /** The list of attachments. */
  node = el("ul", { class: "attachments", "aria-label": "Attached", hidden: true });
  onChange = () => {};
  #files = []; // {name, size, picture: {data, mimeType} | null, text, url}

  get empty() {
    return this.#files.length === 0;
  }

  /** @param {Iterable<File>} files from the picker, a drop or the clipboard */
  async add(files) {
    for (const file of files) {
      try {
        this.#files.push(PICTURES.includes(file.type) ? await this.#picture(file) : await textFile(file));
      } catch (error) {
        notify(error.message, { error: true });
      }
    }
    this.#draw();
  }

  /** What goes into the message: its text files and its pictures. Empties the list. */
  take() {
    const texts = this.#files.filter((file) => !file.picture).map(fenced);
    const pictures = this.#files.filter((file) => file.picture);
    const sent = {
      words: texts.join("\n\n"),
      attachments: pictures.map((file) => ({ type: "image", fileName: file.name, ...file.picture })),
      shown: pictures.map((file) => `data:${file.picture.mimeType};base64,${file.picture.content}`),
    };
    for (const file of this.#files) if (file.url) URL.revokeObjectURL(file.url);
    this.#files = [];
    this.#draw();
    return sent;
  }

  async #picture(file) {
    if (this.#files.filter((each) => each.picture).length >= MOST_PICTURES)
      throw new Error(`A message can have at most ${MOST_PICTURES} pictures.`);
    const blob = file.size > LARGE ? await smaller(file) : file;
    return {
      name: file.name,
      size: blob.size,
      picture: { content: await base64(blob), mimeType: blob.type },
      url: URL.createObjectURL(blob),
    };
  }

  #draw() {
    this.node.hidden = this.empty;
    this.node.replaceChildren(...this.#files.map((file) => this.#row(file)));
    this.onChange();
  }

  #row(file) {
    const remove = () => {
      this.#files = this.#files.filter((each) => each !== file);
      if (file.url) URL.revokeObjectURL(file.url);
      this.#draw();
    };
    const sign = file.url ? el("img", { src: file.url, alt: "" }) : icon("file");
    return el(
      "li",
      { class: "attachment" },
      sign,
      el("span", { class: "attachment-name" }, file.name),
      el("span", { class: "quiet" }, bytes(file.size)),
      el(
        "button",
        { class: "button-icon", type: "button", "aria-label": `Remove ${file.name}`, on: { click: remove } },
        icon("close"),
      ),
    );
  }
}

/** A picture as it was shown, to be sent again. @param {string} src its data, as an address */
export function attachmentOf(src) {
  const [, mimeType, content] = /^data:([^;]+);base64,(.*)$/s.exec(src);
  return { type: "image", fileName: "picture", mimeType, content };
}

async function textFile(file) {
  if (file.size > MOST_TEXT)
    throw new Error(
      `${file.name} is ${bytes(file.size)}; text files can be at most ${bytes(MOST_TEXT)}. Put larger files into the workspace.`,
    );
  const text = await file.text();
  if (/[\0\ufffd]/.test(text)) throw new Error(`${file.name} is neither a picture (PNG, JPEG, GIF, WebP) nor a text file.`);
  return { name: file.name, size: file.size, text };
}

/** A fence that is longer than any in the file. */
function fenced({ name, text }) {
  const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map((found) => found[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${name.replace(/[`\n]/g, "")}\n${text.replace(/\n?$/, "\n")}${fence}`;
}

async function smaller(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = el("canvas", { width: Math.round(bitmap.width * scale), height: Math.round(bitmap.height * scale) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return new Promise((resolve, reject) =>
    canvas.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error(`${file.name} is not a readable picture.`))),
      "image/jpeg",
      0.88,
    ),
  );
}

function base64(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error("The file could not be read."));
    reader.readAsDataURL(blob);
  });
}

/** Files may be dropped anywhere on a node, which is highlighted while they are over it. */
export function droppable(node, take) {
  const over = (yes) => node.classList.toggle("dropping", yes);
  node.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    over(true);
  });
  node.addEventListener("dragleave", (event) => node.contains(event.relatedTarget) || over(false));
  node.addEventListener("drop", (event) => {
    over(false);
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    take([...event.dataTransfer.files]);
  });
}
