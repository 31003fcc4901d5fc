// SPDX-License-Identifier: Apache-2.0
// The script inside of an SVG flame graph. Every frame is a <g data-s="start" data-t="total"> with
// title, rect and text; start and total are in units of the profile, so zooming is exact. State is
// kept in the address: x = start, y = row, t = total of the zoomed frame; s = search; c = ignore case.
(function () {
"use strict";
var svg = document.documentElement, frames = document.getElementById("frames");
var width = +svg.dataset.width, pad = +svg.dataset.pad, all = +svg.dataset.total;
var charWidth = +svg.dataset.char, icicle = svg.dataset.icicle === "1";
var details = document.getElementById("details"), matched = document.getElementById("matched");
var unzoomButton = document.getElementById("unzoom"), searchButton = document.getElementById("search");
var caseButton = document.getElementById("ignorecase");
var nodes = [], zoomed = null, term = "", ignoreCase = false;

Array.prototype.forEach.call(frames.children, function (g) {
	var rect = g.querySelector("rect"), title = g.querySelector("title").textContent;
	var node = { g: g, rect: rect, text: g.querySelector("text"), title: title,
		name: title.replace(/ \([^(]*\)$/, ""), start: +g.dataset.s, total: +g.dataset.t,
		y: +rect.getAttribute("y"), fill: rect.getAttribute("fill") };
	g.node = node;
	nodes.push(node);
});
var root = nodes[0];

function label(node, pixels) {
	var fit = Math.floor((pixels - 6) / charWidth), name = node.name;
	if (fit < 3) return "";
	return name.length <= fit ? name : name.slice(0, fit - 2) + "..";
}

function place(node, x, pixels) {
	node.rect.setAttribute("x", x.toFixed(2));
	node.rect.setAttribute("width", Math.max(pixels, 0).toFixed(2));
	node.text.setAttribute("x", (x + 3).toFixed(2));
	node.text.textContent = label(node, pixels);
}

function above(a, b) { return icicle ? a.y < b.y : a.y > b.y; }

function zoom(target) {
	var scale = (width - 2 * pad) / (target.total || 1), end = target.start + target.total;
	nodes.forEach(function (n) {
		var inside = n.start >= target.start && n.start + n.total <= end && !above(n, target);
		var holds = n.start <= target.start && n.start + n.total >= end && above(n, target);
		n.g.style.display = inside || holds ? "" : "none";
		n.g.style.opacity = holds ? "0.5" : "";
		if (holds) place(n, pad, width - 2 * pad);
		else if (inside) place(n, pad + (n.start - target.start) * scale, n.total * scale);
	});
	zoomed = target === root ? null : target;
	unzoomButton.style.display = zoomed ? "" : "none";
	remember();
}

function expression() {
	try {
		return new RegExp(term, ignoreCase ? "i" : "");
	} catch (e) {
		return null;
	}
}

// What matches inside of a match is not counted again.
function search() {
	var re = term ? expression() : null, hits = [], sum = 0, end = -1;
	nodes.forEach(function (n) {
		var hit = re && n !== root && re.test(n.name);
		n.rect.setAttribute("fill", hit ? "rgb(230,0,230)" : n.fill);
		if (hit) hits.push(n);
	});
	hits.sort(function (a, b) { return a.start - b.start || b.total - a.total; });
	hits.forEach(function (n) {
		if (n.start < end) return;
		sum += n.total;
		end = n.start + n.total;
	});
	matched.textContent = !term ? "" : re ? "Matched: " + (all ? 100 * sum / all : 0).toFixed(2) + "%"
		: "Not a regular expression";
	searchButton.textContent = term ? "Reset Search" : "Search";
	remember();
}

function ask() {
	var answer = term ? "" : prompt("Name to search for (regular expression)", "");
	if (answer === null) return;
	term = answer;
	search();
}

function toggleCase() {
	ignoreCase = !ignoreCase;
	caseButton.style.opacity = ignoreCase ? "1" : "0.3";
	search();
}

function remember() {
	var p = [];
	if (zoomed) p.push("x=" + zoomed.start, "y=" + zoomed.y, "t=" + zoomed.total);
	if (term) p.push("s=" + encodeURIComponent(term));
	if (ignoreCase) p.push("c=1");
	try {
		history.replaceState(null, "", location.pathname + (p.length ? "?" + p.join("&") : ""));
	} catch (e) {
		// from disk some browsers forbid it; then the address just does not follow
	}
}

function restore() {
	var p = {};
	location.search.slice(1).split("&").forEach(function (part) {
		var i = part.indexOf("=");
		try {
			if (i > 0) p[part.slice(0, i)] = decodeURIComponent(part.slice(i + 1));
		} catch (e) {
			// not ours
		}
	});
	if (p.c) toggleCase();
	if (p.x !== undefined)
		nodes.some(function (n) {
			var hit = n.start === +p.x && n.y === +p.y && (p.t === undefined || n.total === +p.t);
			if (hit) zoom(n);
			return hit;
		});
	if (p.s) {
		term = p.s;
		search();
	}
}

function frameOf(e) {
	for (var t = e.target; t && t !== svg; t = t.parentNode)
		if (t.node) return t.node;
	return null;
}

svg.addEventListener("click", function (e) {
	var n = frameOf(e);
	if (n) zoom(n);
	else if (e.target === unzoomButton) zoom(root);
	else if (e.target === searchButton) ask();
	else if (e.target === caseButton) toggleCase();
});
svg.addEventListener("mouseover", function (e) {
	var n = frameOf(e);
	details.textContent = n ? n.title : "";
});
window.addEventListener("keydown", function (e) {
	if (e.key === "F3" || ((e.ctrlKey || e.metaKey) && e.key === "f")) {
		e.preventDefault();
		ask();
	} else if (e.ctrlKey && e.key === "i") {
		e.preventDefault();
		toggleCase();
	} else if (e.key === "Escape") {
		zoom(root);
	}
});
[unzoomButton, searchButton, caseButton].forEach(function (b) { b.style.cursor = "pointer"; });
unzoomButton.style.display = "none";
searchButton.style.display = caseButton.style.display = "";
caseButton.style.opacity = "0.3";
restore();
})();
