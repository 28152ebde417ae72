"""Reports as a notebook shows them: what a report holds is a dict, and its tables are HTML."""
import html


def html_table(title, heads, rows):
    """A table with a caption; every text is escaped."""
    cells = lambda tag, row: "".join(f"<{tag}>{html.escape(str(x))}</{tag}>" for x in row)
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (f"<table><caption>{html.escape(title)}</caption><thead><tr>{cells('th', heads)}</tr></thead>"
            f"<tbody>{body}</tbody></table>")


def _short(value):
    if isinstance(value, (list, dict)) and len(str(value)) > 80:
        return f"{len(value)} entries"
    return value


class ReportDict(dict):
    """A report of the library. In a notebook, single values are one table and each list of objects is another, of
    which 20 rows are shown."""

    def _repr_html_(self):
        lists = {k: v for k, v in self.items() if isinstance(v, list) and v and all(isinstance(x, dict) for x in v)}
        parts = [html_table("", [], [[k, _short(v)] for k, v in self.items() if k not in lists])]
        for name, entries in lists.items():
            keys = list(dict.fromkeys(k for x in entries for k in x))
            rows = [[_short(x.get(k, "")) for k in keys] for x in entries[:20]]
            parts.append(html_table(f"{name} ({len(entries)})", keys, rows))
        return "".join(parts)
