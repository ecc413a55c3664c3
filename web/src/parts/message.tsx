// Short messages at the foot of the page, and the clipboard.

import {signal} from '@preact/signals';

const message = signal('');
let timer = 0;

/** Shows a message for some seconds. Screen readers read it. */
export function say(text: string): void {
  clearTimeout(timer);
  message.value = text;
  timer = setTimeout(() => (message.value = ''), 5000) as unknown as number;
}

export const Message = () => <p class="message" role="status" hidden={message.value === ''}>{message.value}</p>;

/** Copies a text; if the browser refuses, offers it as a file. */
export async function copy(text: string, what: string, name: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied ${what}.`);
  } catch {
    save(new Blob([text], {type: 'text/plain;charset=utf-8'}), name);
    say(`The browser does not allow copying, so ${what} was saved as ${name}.`);
  }
}

/** Saves a file in the browser's folder for downloads. */
export function save(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Saves a canvas as a PNG, on the colour of the page. */
export function savePicture(canvas: HTMLCanvasElement | null, background: string, name: string): void {
  const copied = document.createElement('canvas');
  const context = copied.getContext('2d');
  if (canvas === null || context === null) return;
  copied.width = canvas.width;
  copied.height = canvas.height;
  context.fillStyle = background;
  context.fillRect(0, 0, copied.width, copied.height);
  context.drawImage(canvas, 0, 0);
  copied.toBlob((blob) => blob !== null && save(blob, name));
}
