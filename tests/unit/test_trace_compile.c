/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiler of the tracing language: layouts, types, shared code, what the code of an action
 * contains and what it leaves out. What the kernel computes is tests/live/test_trace_language.py.
 */
#include <criterion/criterion.h>
#include <stdint.h>

#include "trace_target.h"

#define ALL_FEATURES 255u

struct compiled {
	struct btf *btf;
	struct trace_script *script;
	struct trace_program *program;
	struct diag diag;
	int r;
};

static struct compiled compile_for(const char *text, u32 features)
{
	struct compiled c = {.btf = fixture_btf()};
	struct trace_target t = fixture_target(c.btf, features);

	c.r = trace_parse("", text, strlen(text), NULL, &c.diag, &c.script);
	cr_assert_eq(c.r, 0, "%s\n%s", text, c.diag.text);
	c.r = trace_compile(c.script, &t, &c.diag, &c.program);
	return c;
}

static void release(struct compiled *c)
{
	trace_program_destroy(c->program);
	trace_script_destroy(c->script);
	btf__free(c->btf);
}

static struct compiled compile(const char *text)
{
	struct compiled c = compile_for(text, ALL_FEATURES);

	cr_assert_eq(c.r, 0, "%s\n%s", text, c.diag.text);
	return c;
}

static void check_error(const char *text, u32 features, const char *error)
{
	struct compiled c = compile_for(text, features);

	cr_assert_lt(c.r, 0, "%s", text);
	/* What was meant is a list, which grows: the error begins with the text. */
	cr_assert_eq(strncmp(c.diag.text, error, strlen(error)), 0, "%s\nnot\n%s", c.diag.text,
		     error);
	release(&c);
}

static bool is_wide(const struct bpf_insn *insn)
{
	return insn->code == (BPF_LD | BPF_DW | BPF_IMM);
}

static u32 count_calls(const struct bpf_insn *insns, u32 n, s32 helper)
{
	u32 found = 0;

	for (u32 i = 0; i < n; i++) {
		found += insns[i].code == (BPF_JMP | BPF_CALL) && insns[i].imm == helper;
		i += is_wide(&insns[i]);
	}
	return found;
}

static u32 count_maps(const struct bpf_insn *insns, u32 n, u32 map)
{
	u32 found = 0;

	for (u32 i = 0; i < n; i++) {
		if (!is_wide(&insns[i]))
			continue;
		found += insns[i].src_reg == BPF_PSEUDO_MAP_FD && insns[i].imm == (s32)map;
		i++;
	}
	return found;
}

/* ---- maps ---- */

Test(trace_compile, maps_have_the_types_that_the_whole_script_gives_them)
{
	struct compiled c = compile(
		"BEGIN { printf(\"%s\", @name[1, \"ab\"]); @name[2, \"abcdefghij\"] = comm; }"
		"END { @n = count(); @one = 5; @h[tid] = hist(1, 2); }");
	struct trace_map *m = c.program->maps.data;

	cr_assert_eq(c.program->maps.n, 4);
	cr_assert_str_eq(m[0].name, "name");
	cr_assert_eq(m[0].key.kind, TRACE_TUPLE);
	cr_assert_eq(m[0].key_bytes, 8 + 16, "the longer text decides");
	cr_assert_eq(m[0].value_bytes, 16);
	cr_assert_eq(m[0].max_entries, 4096);
	cr_assert(!m[0].per_cpu && !m[0].is_scalar);
	cr_assert(m[1].per_cpu && m[1].is_scalar && m[1].value.kind == TRACE_COUNT);
	cr_assert(!m[2].per_cpu && m[2].is_scalar && m[2].key_bytes == 4);
	cr_assert_eq(m[3].value_bytes, 8 * trace_hist_buckets(2));
	cr_assert(m[3].per_cpu && !m[3].is_scalar);
	release(&c);
}

Test(trace_compile, settings_and_declarations_bound_maps)
{
	struct compiled c =
		compile("config = { max_map_keys = 7; max_strlen = 100 } let @a = lruhash(3);"
			"BEGIN { @a[1] = 2; @b[1] = str(5); }");

	cr_assert_eq(c.program->maps.data[0].max_entries, 3);
	cr_assert(c.program->maps.data[0].is_lru);
	cr_assert_eq(c.program->maps.data[1].max_entries, 7);
	cr_assert_eq(c.program->maps.data[1].value_bytes, 104);
	release(&c);
}

/* ---- code ---- */

Test(trace_compile, counting_by_a_short_key_needs_no_scratch)
{
	struct compiled c = compile("tracepoint:a:b { @[comm] = count(); }");
	struct trace_code *code = c.program->codes.data;

	cr_assert_eq(count_maps(code->first, code->n_first, TRACE_MAP_SCRATCH), 0);
	cr_assert_eq(count_calls(code->first, code->n_first, BPF_FUNC_map_update_elem), 1,
		     "for a new key only");
	/* The way of a key that is there: up to the addition, and the return. */
	cr_assert_leq(code->n_first, 60);
	release(&c);
}

Test(trace_compile, long_texts_take_a_scratch_and_give_it_back)
{
	struct compiled c =
		compile("tracepoint:a:b /pid == 1/ { printf(\"%s\", str(args.filename)); }");
	struct trace_code *code = c.program->codes.data;
	u32 given = 0;

	cr_assert_eq(count_maps(code->first, code->n_first, TRACE_MAP_SCRATCH), 1);
	for (u32 i = 0; i + 1 < code->n_first; i++)
		given += code->first[i].code == (BPF_ALU64 | BPF_MOV | BPF_K) &&
			 code->first[i].imm == -1 &&
			 code->first[i + 1].code == (BPF_STX | BPF_ATOMIC | BPF_DW);
	cr_assert_eq(given, 2, "once while it looks for a free one, once at the only end");
	cr_assert_eq(count_calls(code->first, code->n_first, BPF_FUNC_probe_read_user_str), 0,
		     "this tracepoint's pointers are the kernel's");
	cr_assert_geq(c.program->scratch_bytes, 1024 + 16);
	release(&c);
}

Test(trace_compile, pointers_of_system_calls_are_of_the_process)
{
	struct compiled c =
		compile("tracepoint:syscalls:x { printf(\"%s\", str(args.filename)); }");
	struct trace_code *code = c.program->codes.data;

	cr_assert_eq(count_calls(code->first, code->n_first, BPF_FUNC_probe_read_user_str), 1);
	release(&c);
}

Test(trace_compile, what_cannot_run_is_left_out)
{
	struct compiled a = compile("BEGIN { exit(); @x = 1; printf(\"no\"); }");
	struct compiled b = compile("BEGIN { exit(); }");

	cr_assert_eq(a.program->codes.data[0].n_first, b.program->codes.data[0].n_first);
	release(&a);
	release(&b);
}

Test(trace_compile, branches_that_are_decided_are_not_compiled)
{
	struct compiled c = compile("BEGIN { if (false) { @never = nsecs; } else { @x = 1; } }");

	cr_assert_eq(c.program->maps.n, 1);
	cr_assert_str_eq(c.program->maps.data[0].name, "x");
	release(&c);
}

Test(trace_compile, points_share_code_unless_it_depends_on_them)
{
	struct compiled a = compile("kprobe:l* { @[comm] = count(); }");
	struct compiled b = compile("kprobe:l* { @[probe] = count(); }");

	cr_assert_eq(a.program->probes.n, 2);
	cr_assert_eq(a.program->codes.n, 1);
	cr_assert_eq(b.program->probes.n, 2);
	cr_assert_eq(b.program->codes.n, 2);
	cr_assert_eq(b.program->probes.data[1].code, 1);
	release(&a);
	release(&b);
}

Test(trace_compile, stacks_make_two_halves)
{
	struct compiled c = compile_for(
		"kprobe:look /pid/ { @[kstack] = count(); @[ustack(3)] = count(); }", ALL_FEATURES);

	cr_assert_lt(c.r, 0, "a map has one key type");
	release(&c);
	c = compile("kprobe:look /pid/ { @k[kstack] = count(); @u[ustack(3)] = count(); }");
	cr_assert_eq(c.program->codes.n, 1);
	struct trace_code *code = c.program->codes.data;

	cr_assert_not_null(code->second);
	cr_assert_eq(count_calls(code->first, code->n_first, BPF_FUNC_tail_call), 1);
	cr_assert_eq(count_calls(code->second, code->n_second, BPF_FUNC_tail_call), 0);
	cr_assert_eq(count_maps(code->first, code->n_first, TRACE_MAPS_OWN), 0,
		     "the first half counts nothing");
	cr_assert_eq(c.program->maps.data[1].key.n, 3);
	release(&c);
}

Test(trace_compile, loops_over_maps_are_functions)
{
	struct compiled c = compile("BEGIN { @a[1] = 2; for ($kv : @a) { $n = $kv.1; } }");
	struct trace_code *code = c.program->codes.data;
	u32 functions = 0;

	for (u32 i = 0; i < code->n_first; i++) {
		if (!is_wide(&code->first[i]))
			continue;
		if (code->first[i].src_reg == BPF_PSEUDO_FUNC) {
			functions++;
			cr_assert_lt(i + 1 + (u32)code->first[i].imm, code->n_first);
		}
		i++;
	}
	cr_assert_eq(functions, 1);
	release(&c);
	check_error("BEGIN { @a[1] = 2; for ($kv : @a) { } }", 8,
		    "1:20: this kernel cannot walk maps before Linux 5.13");
}

Test(trace_compile, formats_have_their_arguments)
{
	struct compiled c =
		compile("BEGIN { printf(\"%d %s %s\\n\", 1, comm, ntop(0)); errorf(\"x\"); }");
	struct trace_format *f = c.program->formats.data;

	cr_assert_eq(c.program->formats.n, 2);
	cr_assert_eq(f[0].n, 3);
	cr_assert_eq(f[0].offsets[1], 8);
	cr_assert_eq(f[0].offsets[2], 24);
	cr_assert_eq(f[0].bytes, 48);
	cr_assert_eq(f[0].arguments[2].kind, TRACE_INET);
	cr_assert(!f[0].to_stderr && f[1].to_stderr);
	release(&c);
}

/* ---- histograms ---- */

Test(trace_compile, buckets_of_histograms_join)
{
	for (u32 bits = 0; bits <= 5; bits++) {
		u32 n = trace_hist_buckets(bits);

		cr_assert_eq(trace_hist_bucket((u64)-1, bits), 0);
		cr_assert_eq(trace_hist_bucket(0, bits), 1);
		cr_assert_eq(trace_hist_bucket(INT64_MAX, bits), n - 1);
		for (u32 i = 2; i < n; i++) {
			u64 low = trace_hist_low(i, bits);

			cr_assert_eq(trace_hist_bucket(low, bits), i, "bits %u bucket %u", bits, i);
			cr_assert_eq(trace_hist_bucket(low - 1, bits), i - 1);
		}
	}
}

/* ---- errors ---- */

Test(trace_compile, errors_say_where_and_what)
{
	check_error("BEGIN { @x = nsec; }", ALL_FEATURES,
		    "1:14: unknown name \"nsec\"; there are nsecs, ");
}

Test(trace_compile, errors)
{
	check_error("BEGIN { $x = $y; }", ALL_FEATURES, "1:14: $y has no value here");
	check_error("BEGIN { @x = @y; }", ALL_FEATURES,
		    "1:14: @y is read, but nothing is ever assigned to it");
	check_error("BEGIN { @x[1] = 1; @x = 2; }", ALL_FEATURES, "1:20: @x has keys: write @x[…]");
	check_error("BEGIN { @x = 1; @x[1] = 2; }", ALL_FEATURES,
		    "1:17: @x has no keys elsewhere in the script");
	check_error("BEGIN { $x = 1; $x = \"a\"; }", ALL_FEATURES,
		    "1:17: $x is a int64, and cannot become a string");
	check_error("BEGIN { break; }", ALL_FEATURES, "1:9: there is no loop around this");
	check_error("kprobe:look { print(args.size); }", ALL_FEATURES,
		    "1:21: kprobe:look has no args by name: use arg0 to arg9, or a fentry or "
		    "tracepoint probe");
	check_error("tracepoint:a:b { @ = arg0; }", ALL_FEATURES,
		    "1:22: tracepoint:a:b has no arg0: use args.NAME");
	check_error("kretprobe:look { @ = arg0; }", ALL_FEATURES,
		    "1:22: arg0 is gone when the function returns: keep it in a map");
	check_error("BEGIN { @c = count(); @x = @c + 1; }", 8,
		    "1:28: the value of count() cannot be read here before Linux 5.19: print it");
	check_error("BEGIN { unroll(100) { unroll(100) { unroll(100) { @x++; } } } }", ALL_FEATURES,
		    "1:1: this action is too long: 60000 instructions are the limit");
	check_error("kprobe:absent { }", ALL_FEATURES, "1:1: there is no probe 'kprobe:absent'");
}
