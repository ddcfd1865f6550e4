// A button on each block of code that copies it, without the prompts of commands.
for (const block of navigator.clipboard ? document.querySelectorAll("article .highlight") : []) {
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const text = block.querySelector("pre").textContent.replace(/^\$ /gm, "").trimEnd();
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  block.append(button);
}

// Beside each light picture its dark one; the theme shows the one that fits.
for (const light of document.querySelectorAll('article img[src$="-light.webp"]')) {
  const dark = light.cloneNode();
  dark.src = light.src.replace(/_images\/(.*)-light/, "_static/$1-dark");
  light.classList.add("only-light");
  dark.classList.add("only-dark");
  light.after(dark);
}
