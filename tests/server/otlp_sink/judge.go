// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
)

// ---- the rules ----

type judge struct {
	d    pprofile.ProfilesDictionary
	errs error
	used map[string]map[int32]bool
}

func (j *judge) wrong(format string, args ...any) {
	j.errs = errors.Join(j.errs, fmt.Errorf(format, args...))
}

// An index into a table; what is referred to is no orphan.
func (j *judge) use(table string, index int32, n int) bool {
	if index < 0 || int(index) >= n {
		j.wrong("%s %d of %d", table, index, n)
		return false
	}
	if j.used[table] == nil {
		j.used[table] = map[int32]bool{}
	}
	j.used[table][index] = true
	return true
}

func (j *judge) text(index int32) { j.use("string", index, j.d.StringTable().Len()) }

func (j *judge) attributes(of string, indices pcommon.Int32Slice) map[string]bool {
	keys := map[string]bool{}
	for _, i := range indices.AsRaw() {
		if !j.use("attribute", i, j.d.AttributeTable().Len()) {
			continue
		}
		k := j.d.AttributeTable().At(int(i)).KeyStrindex()
		if i == 0 || int(k) >= j.d.StringTable().Len() || k <= 0 {
			j.wrong("%s: attribute %d has no key", of, i)
			continue
		}
		key := j.d.StringTable().At(int(k))
		if keys[key] {
			j.wrong("%s: two attributes %s", of, key)
		}
		keys[key] = true
	}
	return keys
}

// Entries in words: entry 0 is zero, none is there twice.
func (j *judge) table(name, zero string, n int, entry func(i int) string) {
	seen := map[string]int{}
	for i := 0; i < n; i++ {
		e := entry(i)
		if at, ok := seen[e]; ok {
			j.wrong("%s %d and %d are equal", name, at, i)
		}
		if i == 0 && e != zero {
			j.wrong("%s 0 is not the zero value but %s", name, e)
		}
		seen[e] = i
	}
	if n == 0 {
		j.wrong("the table of %ss is empty", name)
	}
}

func (j *judge) orphans(name string, n int) {
	for i := 1; i < n; i++ {
		if !j.used[name][int32(i)] {
			j.wrong("nothing refers to %s %d", name, i)
		}
	}
}

func (j *judge) valueType(v pprofile.ValueType) {
	j.text(v.TypeStrindex())
	j.text(v.UnitStrindex())
}

func (j *judge) profile(p pprofile.Profile) {
	shapes := map[string]bool{}
	identities := map[string]bool{}
	start, end := uint64(p.Time()), uint64(p.Time())+p.DurationNano()
	j.attributes("profile", p.AttributeIndices())
	if p.SampleType().TypeStrindex() == 0 {
		j.wrong("no sample type")
	}
	j.valueType(p.SampleType())
	j.valueType(p.PeriodType())
	for i := 0; i < p.Samples().Len(); i++ {
		s := p.Samples().At(i)
		j.use("stack", s.StackIndex(), j.d.StackTable().Len())
		j.use("link", s.LinkIndex(), j.d.LinkTable().Len())
		j.attributes("sample", s.AttributeIndices())
		v, t := s.Values().Len(), s.TimestampsUnixNano().Len()
		shapes[fmt.Sprint(v > 0, t > 0)] = true
		if v == 0 && t == 0 || v > 0 && t > 0 && v != t || t == 0 && v > 1 {
			j.wrong("a sample of %d values and %d times", v, t)
		}
		for _, at := range s.TimestampsUnixNano().AsRaw() {
			if at < start || at >= end {
				j.wrong("time %d outside of [%d, %d)", at, start, end)
			}
		}
		set := append([]int32{}, s.AttributeIndices().AsRaw()...)
		sort.Slice(set, func(a, b int) bool { return set[a] < set[b] })
		id := fmt.Sprint(s.StackIndex(), set, s.LinkIndex())
		if identities[id] {
			j.wrong("two samples of one identity")
		}
		identities[id] = true
	}
	if len(shapes) > 1 {
		j.wrong("samples of %d shapes in one profile", len(shapes))
	}
}

func (j *judge) mappings() {
	t := j.d.MappingTable()
	j.table("mapping", "0 0 0 0 []", t.Len(), func(i int) string {
		m := t.At(i)
		if !(m.MemoryStart() == 0 && m.MemoryLimit() == 0) && m.MemoryStart() >= m.MemoryLimit() {
			j.wrong("mapping %d from %x to %x", i, m.MemoryStart(), m.MemoryLimit())
		}
		j.text(m.FilenameStrindex())
		j.attributes("mapping", m.AttributeIndices())
		return fmt.Sprint(m.MemoryStart(), m.MemoryLimit(), m.FileOffset(), m.FilenameStrindex(),
			m.AttributeIndices().AsRaw())
	})
}

func (j *judge) locations() {
	t := j.d.LocationTable()
	j.table("location", "0 0 []", t.Len(), func(i int) string {
		l := t.At(i)
		j.use("mapping", l.MappingIndex(), j.d.MappingTable().Len())
		keys := j.attributes("location", l.AttributeIndices())
		if i > 0 && !keys["profile.frame.type"] {
			j.wrong("location %d has no frame type", i)
		}
		out := fmt.Sprint(l.MappingIndex(), l.Address(), l.AttributeIndices().AsRaw())
		for k := 0; k < l.Lines().Len(); k++ {
			line := l.Lines().At(k)
			j.use("function", line.FunctionIndex(), j.d.FunctionTable().Len())
			if line.Line() < 0 || line.Column() < 0 {
				j.wrong("location %d: line %d", i, line.Line())
			}
			out += fmt.Sprint(";", line.FunctionIndex(), line.Line(), line.Column())
		}
		return out
	})
}

func (j *judge) dictionary() {
	d := j.d
	j.mappings()
	j.locations()
	j.table("function", "0 0 0 0", d.FunctionTable().Len(), func(i int) string {
		f := d.FunctionTable().At(i)
		j.text(f.NameStrindex())
		j.text(f.SystemNameStrindex())
		j.text(f.FilenameStrindex())
		if f.StartLine() < 0 {
			j.wrong("function from line %d", f.StartLine())
		}
		return fmt.Sprint(f.NameStrindex(), f.SystemNameStrindex(), f.FilenameStrindex(), f.StartLine())
	})
	j.table("link", "/", d.LinkTable().Len(), func(i int) string {
		l := d.LinkTable().At(i)
		return l.TraceID().String() + "/" + l.SpanID().String()
	})
	j.table("string", "", d.StringTable().Len(), func(i int) string { return d.StringTable().At(i) })
	j.table("attribute", "0 Empty  0", d.AttributeTable().Len(), func(i int) string {
		a := d.AttributeTable().At(i)
		j.text(a.KeyStrindex())
		j.text(a.UnitStrindex())
		return fmt.Sprint(a.KeyStrindex(), " ", a.Value().Type(), " ", a.Value().AsString(), " ",
			a.UnitStrindex())
	})
	j.table("stack", "[]", d.StackTable().Len(), func(i int) string {
		indices := d.StackTable().At(i).LocationIndices().AsRaw()
		for _, l := range indices {
			j.use("location", l, d.LocationTable().Len())
		}
		return fmt.Sprint(indices)
	})
	j.orphans("mapping", d.MappingTable().Len())
	j.orphans("location", d.LocationTable().Len())
	j.orphans("function", d.FunctionTable().Len())
	j.orphans("string", d.StringTable().Len())
	j.orphans("attribute", d.AttributeTable().Len())
	j.orphans("stack", d.StackTable().Len())
}

// Calls f for each profile, with its resource and its scope.
func profilesOf(r pprofileotlp.ExportRequest, f func(pcommon.Resource, pcommon.InstrumentationScope,
	pprofile.Profile)) (empty int) {
	all := r.Profiles().ResourceProfiles()
	for i := 0; i < all.Len(); i++ {
		scopes := all.At(i).ScopeProfiles()
		if scopes.Len() == 0 {
			empty++
		}
		for k := 0; k < scopes.Len(); k++ {
			if scopes.At(k).Profiles().Len() == 0 {
				empty++
			}
			for l := 0; l < scopes.At(k).Profiles().Len(); l++ {
				f(all.At(i).Resource(), scopes.At(k).Scope(), scopes.At(k).Profiles().At(l))
			}
		}
	}
	return empty
}

func check(name string, r pprofileotlp.ExportRequest) error {
	j := &judge{d: r.Profiles().Dictionary(), used: map[string]map[int32]bool{}}
	n := 0
	empty := profilesOf(r, func(res pcommon.Resource, _ pcommon.InstrumentationScope,
		p pprofile.Profile) {
		n++
		if _, ok := res.Attributes().Get(""); ok {
			j.wrong("a resource attribute without a key")
		}
		j.profile(p)
	})
	if n == 0 || empty != 0 {
		j.wrong("%d profiles, %d resources or scopes are empty", n, empty)
	}
	j.dictionary()
	if j.errs != nil {
		return fmt.Errorf("%s: %w", name, j.errs)
	}
	return nil
}

// ---- the request in words ----

func attributes(d pprofile.ProfilesDictionary, indices pcommon.Int32Slice) string {
	var out []string
	for _, i := range indices.AsRaw() {
		a := d.AttributeTable().At(int(i))
		out = append(out, d.StringTable().At(int(a.KeyStrindex()))+"="+a.Value().AsString())
	}
	sort.Strings(out)
	return strings.Join(out, ",")
}

func location(d pprofile.ProfilesDictionary, l pprofile.Location) string {
	text := func(i int32) string { return d.StringTable().At(int(i)) }
	m := d.MappingTable().At(int(l.MappingIndex()))
	out := fmt.Sprintf("%x %s[%x-%x %s] (%s)", l.Address(), text(m.FilenameStrindex()),
		m.MemoryStart(), m.MemoryLimit(), attributes(d, m.AttributeIndices()),
		attributes(d, l.AttributeIndices()))
	for i := 0; i < l.Lines().Len(); i++ {
		line := l.Lines().At(i)
		f := d.FunctionTable().At(int(line.FunctionIndex()))
		out += fmt.Sprintf(" %s/%s/%s:%d:%d:%d", text(f.NameStrindex()),
			text(f.SystemNameStrindex()), text(f.FilenameStrindex()), f.StartLine(),
			line.Line(), line.Column())
	}
	return out
}

func head(d pprofile.ProfilesDictionary, res pcommon.Resource, scope pcommon.InstrumentationScope,
	p pprofile.Profile) string {
	text := func(i int32) string { return d.StringTable().At(int(i)) }
	var labels []string
	for k, v := range res.Attributes().All() {
		labels = append(labels, k+"="+v.AsString())
	}
	sort.Strings(labels)
	return fmt.Sprintf("%s %s %s: %s %s each %d %s %s at %d for %d (%s)",
		strings.Join(labels, ","), scope.Name(), scope.Version(),
		text(p.SampleType().TypeStrindex()), text(p.SampleType().UnitStrindex()), p.Period(),
		text(p.PeriodType().TypeStrindex()), text(p.PeriodType().UnitStrindex()), p.Time(),
		p.DurationNano(), attributes(d, p.AttributeIndices()))
}

func show(name string, r pprofileotlp.ExportRequest) error {
	var lines []string
	d := r.Profiles().Dictionary()
	profilesOf(r, func(res pcommon.Resource, scope pcommon.InstrumentationScope,
		p pprofile.Profile) {
		h := head(d, res, scope, p)
		lines = append(lines, h)
		for i := 0; i < p.Samples().Len(); i++ {
			s := p.Samples().At(i)
			line := h + fmt.Sprintf(" | %v %v %s", s.Values().AsRaw(),
				s.TimestampsUnixNano().AsRaw(), attributes(d, s.AttributeIndices()))
			for _, l := range d.StackTable().At(int(s.StackIndex())).LocationIndices().AsRaw() {
				line += " < " + location(d, d.LocationTable().At(int(l)))
			}
			lines = append(lines, line)
		}
	})
	sort.Strings(lines)
	fmt.Println(strings.Join(lines, "\n"))
	return nil
}
