"""What a campaign has found, as text and as a page with pictures."""
import collections
import html

KINDS = ("hang", "wrong", "left", "blamed", "unnamed", "signal", "late", "status", "unexpected", "campaign")


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else None


def summary(chosen, results, left, seconds):
    done = [r for r in results if "skipped" not in r]
    rows = {}
    for s in chosen:
        rows[s.name] = {"family": s.family, "place": s.place, "when": s.when, "runs": 0, "failed": 0, "skipped": 0,
                        "named": 0, "unnamed": 0, "noticed": [], "kinds": collections.Counter()}
    for r in results:
        row = rows[r["scenario"]]
        if "skipped" in r:
            row["skipped"] += 1
            continue
        row["runs"] += 1
        row["failed"] += bool(r["problems"])
        row["named"] += r.get("named", 0)
        row["unnamed"] += r.get("unnamed", 0)
        row["kinds"].update({p["kind"] for p in r["problems"]})
        if "noticed" in r:
            row["noticed"].append(r["noticed"])
    kinds = collections.Counter()
    for row in rows.values():
        kinds.update(row["kinds"])
    named, unnamed = (sum(row[k] for row in rows.values()) for k in ("named", "unnamed"))
    return {"scenarios": len(rows), "runs": len(done), "skipped": len(results) - len(done),
            "failed": sum(bool(r["problems"]) for r in done), "kinds": dict(kinds), "left": left, "named": named,
            "unnamed": unnamed, "seconds": round(seconds, 1), "rows": rows}


def deaths(summary):
    """Times to notice a death, on a host and across."""
    groups = {"on a host": [], "across hosts": []}
    for row in summary["rows"].values():
        if row["family"].startswith("death") and row["when"] == "calls":
            local = row["place"] in ("processes", "threads", "pairs")
            groups["on a host" if local else "across hosts"] += row["noticed"]
    return groups


def text(s):
    lines = [f"{s['runs']} runs of {s['scenarios']} scenarios in {s['seconds']} s; {s['failed']} not as they must be"
             + (f"; {s['skipped']} skipped" if s["skipped"] else "")]
    if s["kinds"]:
        lines.append("runs with: " + ", ".join(f"{k} {s['kinds'][k]}" for k in KINDS if k in s["kinds"]))
    if s["named"] + s["unnamed"]:
        lines.append(f"the guilty was named in {s['named']} of {s['named'] + s['unnamed']} errors "
                     f"({100 * s['named'] / (s['named'] + s['unnamed']):.2f} %)")
    for where, times in deaths(s).items():
        if times:
            limit = 0.1 if where == "on a host" else 0.5
            within = 100 * sum(t <= limit for t in times) / len(times)
            lines.append(f"deaths {where}: noticed by all after {quantile(times, 0.5) * 1e3:.1f} ms (median), "
                         f"{quantile(times, 0.99) * 1e3:.0f} ms (99 %), {max(times) * 1e3:.0f} ms (the longest); "
                         f"{within:.1f} % within {limit} s")
    if s["left"]:
        lines.append(f"left behind: {', '.join(s['left'])}")
    return "\n".join(lines)


def ticks(rows, width=260, least=0.001, most=60):
    """A picture of times, on a logarithmic scale."""
    import math
    marks = []
    for t in rows:
        x = width * math.log(max(t, least) / least) / math.log(most / least)
        marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="2" y2="12" class="t"/>')
    grid = "".join(f'<line x1="{width * k / 4.778:.1f}" x2="{width * k / 4.778:.1f}" y1="0" y2="14" class="g"/>'
                   for k in range(5))
    return f'<svg width="{width}" height="14">{grid}{"".join(marks)}</svg>'


STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: 1px 8px; text-align: left; border-bottom: 1px solid #8883; }
td.n { text-align: right; } .bad { color: #c22; font-weight: 600; } .t { stroke: #27c; stroke-opacity: .5; }
.g { stroke: #8886; } .cell { display: inline-block; width: 9px; height: 9px; margin: 1px; background: #3a6; }
.cell.bad { background: #c22; } .cell.none { background: #bbb; } pre { white-space: pre-wrap; }
"""


def page(s, results):
    families = collections.defaultdict(list)
    for name, row in s["rows"].items():
        families[row["family"]].append((name, row))
    out = [f"<!doctype html><meta charset=utf-8><title>The campaign</title><style>{STYLE}</style><h1>The campaign</h1>",
           f"<pre>{html.escape(text(s))}</pre><h2>All scenarios</h2><p>A square is a scenario: green, where all of its "
           "runs were as they must be.</p><table>"]
    for family, rows in families.items():
        cells = "".join(f'<span class="cell {"bad" if r["failed"] else "" if r["runs"] else "none"}" '
                        f'title="{html.escape(n)}"></span>' for n, r in rows)
        out.append(f"<tr><th><a href='#{family}'>{family}</a></th><td>{cells}</td></tr>")
    out.append("</table>")
    for family, rows in families.items():
        out.append(f"<h2 id='{family}'>{family}</h2><table><tr><th>scenario<th>runs<th>failed<th>named<th>noticed "
                   "after (lines at 1, 10, 100 ms, 1, 10 s)<th>median, s<th>longest, s</tr>")
        for name, r in rows:
            bad = "; ".join(f"{k} {n}" for k, n in r["kinds"].items())
            median = quantile(r["noticed"], 0.5)
            longest = max(r["noticed"]) if r["noticed"] else None
            out.append(f"<tr><td>{html.escape(name)}<td class=n>{r['runs']}<td class='n {'bad' if bad else ''}'>"
                       f"{r['failed']} {bad}<td class=n>{r['named']}/{r['named'] + r['unnamed']}<td>"
                       f"{ticks(r['noticed'])}<td class=n>{'' if median is None else f'{median:.3f}'}"
                       f"<td class=n>{'' if longest is None else f'{longest:.3f}'}</tr>")
        out.append("</table>")
    failed = [r for r in results if r.get("problems")]
    if failed:
        out.append("<h2>What was not as it must be</h2>")
        for r in failed[:200]:
            said = "\n".join(f"{p}: {line}" for p, lines in r.get("said", {}).items() for line in lines[-8:])
            problems = "\n".join(f"{p['kind']}: {p['text']}" for p in r["problems"])
            out.append(f"<details><summary>{html.escape(r['scenario'])} --first {r['seed']}</summary>"
                       f"<pre>{html.escape(problems)}\n\n{html.escape(said)}</pre></details>")
    return "\n".join(out)
