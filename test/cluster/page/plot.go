package main

import (
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"strings"
)

// point is a figure at a number of nodes.
type point struct{ nodes, value float64 }

// Sizes of a plot, in pixels. The names of the lines are to the right of the plot.
const (
	width, height            = 860, 360
	left, right, top, bottom = 60, 320, 36, 40
)

var colours = []string{"#1b6ca8", "#c0392b", "#27864b", "#8e44ad", "#d68910", "#117a65", "#566573", "#b03a78", "#6e5a1f", "#2e4053"}

// drawLines draws lines over nodes, both axes from zero, as an SVG.
func drawLines(title string, lines map[string][]point) string {
	maxX, maxY := 1.0, 1.0
	for _, points := range lines {
		for _, p := range points {
			maxX, maxY = max(maxX, p.nodes), max(maxY, p.value)
		}
	}
	maxY = roundUp(maxY)
	x := func(nodes float64) float64 { return left + nodes/maxX*(width-left-right) }
	y := func(value float64) float64 { return height - bottom - value/maxY*(height-top-bottom) }
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="20" font-size="14">%s</text>`+"\n", width, height, left, html.EscapeString(title))
	for i := range 5 {
		at := maxY * float64(i) / 4
		fmt.Fprintf(&out, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			left, y(at), width-right, y(at), left-6, y(at)+4, at)
	}
	for _, nodes := range sizesOf(lines) {
		fmt.Fprintf(&out, `<text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", x(nodes), height-bottom+18, nodes)
	}
	fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="middle">nodes</text>`+"\n", left+(width-left-right)/2, height-6)
	for i, name := range slices.Sorted(maps.Keys(lines)) {
		var path []string
		for _, p := range lines[name] {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(p.nodes), y(p.value)))
		}
		colour := colours[i%len(colours)]
		fmt.Fprintf(&out, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), colour)
		at := top + 10 + 18*i
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="12" height="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			width-right+16, at, colour, width-right+34, at+7, html.EscapeString(name))
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// roundUp returns the next number that is a suitable end of a scale with four parts.
func roundUp(value float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(value)))
	for _, step := range []float64{1, 2, 4, 8} {
		if step*unit >= value {
			return step * unit
		}
	}
	return 10 * unit
}

func sizesOf(lines map[string][]point) []float64 {
	sizes := map[float64]bool{}
	for _, points := range lines {
		for _, p := range points {
			sizes[p.nodes] = true
		}
	}
	return slices.Sorted(maps.Keys(sizes))
}
