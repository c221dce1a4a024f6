"""What "make site" checks and changes beside MkDocs itself. A warning fails the build, as it is strict.

Pages of docs link to files of the repository outside of it, as GitHub shows them. Such a link is checked against the tree and leads
to the repository in the built site. Links of Markdown files that are not part of the site (README.md, CONTRIBUTING.md, ...) are
checked too. A list or table right below a line of text is text to MkDocs and a list to GitHub: it is refused.
"""

import logging
import re
from pathlib import Path

from markdown.extensions.toc import unique
from pymdownx.slugs import slugify

log = logging.getLogger("mkdocs.hooks.site")

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/storageclient/operator"

FENCE = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.M)
LISTED = re.compile(r"^(?![ \t]*(?:[-*+]|\d+\.)[ \t]|[ \t]*\||[ \t]*[-=]{3,}[ \t]*$|<!--|#)[^ \t\n][^\n]*\n(?:(?:[-*+]|1\.)[ \t]\S|\|)", re.M)
LOADED = re.compile(r"""<(?:script|img|iframe|source|link(?=[^>]*rel="(?:stylesheet|icon|preconnect|preload)"))\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"' >]+)""")

to_slug = slugify(case="lower")


def on_pre_build(config):
    for file in repository_pages():
        text = strip_code(file.read_text())
        for _, target, _ in LINK.findall(text):
            problem = broken(file, target)
            if problem:
                log.warning("%s: %s", file.relative_to(ROOT), problem)


def repository_pages():
    """Markdown files that GitHub shows and the site does not."""
    yield from sorted(ROOT.glob("*.md"))
    for folder in ("config", "hack", "test"):
        yield from sorted((ROOT / folder).rglob("*.md"))


def strip_code(text):
    return CODE.sub("", FENCE.sub("", text))


def broken(file, target):
    """Why a link leads nowhere, or nothing."""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    where = (file.parent / path).resolve() if path else file
    if not where.exists():
        return f"the link {target} leads to no file"
    if anchor and where.suffix == ".md" and anchor not in anchors(where):
        return f"the link {target} leads to no heading"
    return None


def anchors(file):
    found = set()
    for heading in HEADING.findall(FENCE.sub("", file.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        unique(to_slug(text, "-"), found)
    return found


def on_page_markdown(markdown, page, config, files):
    source = Path(page.file.abs_src_path)
    for match in LISTED.finditer(FENCE.sub("", markdown)):
        log.warning("%s: a blank line is missing above a list or table: %s", page.file.src_uri, match.group(0).splitlines()[-1])
    return outside_code(markdown, lambda text: LINK.sub(lambda m: m[1] + leave_docs(source, m[2]) + m[3], text))


def outside_code(markdown, change):
    """Changes a text but for its fenced blocks and code spans."""
    parts, end = [], 0
    for match in re.finditer(FENCE.pattern + "|" + CODE.pattern, markdown, re.M | re.S):
        parts += [change(markdown[end : match.start()]), match.group(0)]
        end = match.end()
    return "".join(parts) + change(markdown[end:])


def leave_docs(source, target):
    """The address in the repository of a file outside of docs; any other link as it is."""
    if re.match(r"[a-z]+:|#", target):
        return target
    path, _, anchor = target.partition("#")
    where = (source.parent / path).resolve()
    if where.is_relative_to(DOCS):
        return target
    problem = broken(source, target)
    if problem:
        log.warning("%s: %s", source.relative_to(DOCS), problem)
    kind = "tree" if where.is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{where.relative_to(ROOT)}" + ("#" + anchor if anchor else "")


def on_post_page(output, page, config):
    for address in LOADED.findall(output):
        log.warning("%s: the page loads %s from elsewhere", page.file.src_uri, address)
    return output
