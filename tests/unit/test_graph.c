/* SPDX-License-Identifier: Apache-2.0 */
/* What agent/graph/graph.c makes of the text of the function_graph tracer. */
#include <criterion/criterion.h>
#include <string.h>

#include "agent/graph/graph.h"

static struct graph graph;

static void start(void)
{
	cr_assert_eq(graph_init(&graph, "f"), 0);
}

static void end(void)
{
	graph_deinit(&graph);
}

TestSuite(graph, .init = start, .fini = end);

static void feed(const char *text)
{
	cr_assert_eq(graph_feed(&graph, text, strlen(text)), 0);
}

/* The call at the path "f/g/h". */
static const struct graph_call *at(const char *path)
{
	u32 call = 0;

	while (*path) {
		size_t n = strcspn(path, "/");
		u32 i = graph.calls.data[call].first_child;

		for (; i; i = graph.calls.data[i].sibling) {
			const char *name = strtab_get(&graph.names, graph.calls.data[i].name);

			if (strlen(name) == n && memcmp(name, path, n) == 0)
				break;
		}
		cr_assert(i, "no call %s", path);
		call = i;
		path += n + (path[n] == '/');
	}
	return &graph.calls.data[call];
}

static void expect(const char *path, u64 count, u64 total_ns, u64 callees_ns)
{
	const struct graph_call *c = at(path);

	cr_assert_eq(c->count, count, "%s: %llu calls", path, c->count);
	cr_assert_eq(c->total_ns, total_ns, "%s: %llu ns", path, c->total_ns);
	cr_assert_eq(c->callees_ns, callees_ns, "%s: %llu ns of callees", path, c->callees_ns);
}

Test(graph, calls_are_merged_by_path)
{
	for (int i = 0; i < 2; i++)
		feed(" 0)    cat-123     |               |  f() {\n"
		     " 0)    cat-123     |   1.057 us    |    g();\n"
		     " 0)    cat-123     |               |    h() {\n"
		     " 0)    cat-123     |   0.500 us    |      g();\n"
		     " 0)    cat-123     |   2.000 us    |    }\n"
		     " 0)    cat-123     |   9.892 us    |  }\n");
	graph_finish(&graph);
	expect("f", 2, 19784, 6114);
	expect("f/g", 2, 2114, 0);
	expect("f/h", 2, 4000, 1000);
	expect("f/h/g", 2, 1000, 0);
	cr_assert_eq(graph.left_out, 0);
}

Test(graph, threads_are_kept_apart)
{
	feed(" 0)    cat-1     |               |  f() {\n"
	     " 1)    cat-2     |               |  f() {\n"
	     " ------------------------------------------\n"
	     " 0)    cat-1  =>  dog-3\n"
	     " ------------------------------------------\n"
	     " 1)    cat-2     |   5.000 us    |  } /* f */\n"
	     " 1)    cat-1     |   1.000 us    |    g();\n"
	     " 1)    cat-1     |   7.000 us    |  }\n");
	expect("f", 2, 12000, 1000);
}

Test(graph, newer_kernels_write_arguments_and_values)
{
	feed(" 0)   a | b-1     |               |  f(file=0xffff, n=3) {\n"
	     " 0)   a | b-1     |   1.000 us    |    g [xfs](x=1); /* = 0x0 */\n"
	     " 0)   a | b-1     | + 10.500 us   |  } /* f = 3 */\n");
	expect("f", 1, 10500, 1000);
	expect("f/g [xfs]", 1, 1000, 0);
}

Test(graph, idle_threads_of_cpus_are_kept_apart)
{
	feed(" 0)   <idle>-0     |               |  f() {\n"
	     " 1)   <idle>-0     |   1.000 us    |  f();\n"
	     " 0)   <idle>-0     |   2.000 us    |  }\n");
	expect("f", 2, 3000, 0);
}

Test(graph, a_loss_is_counted_and_attaches_nothing_to_a_wrong_caller)
{
	feed(" 0)    cat-1     |               |  f() {\n"
	     "CPU:0 [LOST 12 EVENTS]\n"
	     " 0)    cat-1     |               |    inner() {\n"
	     " 0)    cat-1     |   1.000 us    |      g();\n"
	     " 0)    cat-1     |   2.000 us    |    }\n"
	     " 0)    cat-1     |   5.000 us    |  }\n"
	     " 0)    cat-1     |   3.000 us    |  f();\n");
	cr_assert_eq(graph.lost, 12);
	expect("f", 1, 3000, 0);
	cr_assert_eq(graph.calls.n, 2, "%zu", graph.calls.n);
	cr_assert_gt(graph.left_out, 0);
}

Test(graph, a_call_that_has_not_returned_is_left_out)
{
	feed(" 0)    cat-1     |               |  f() {\n");
	graph_finish(&graph);
	cr_assert_eq(graph.left_out, 1);
	cr_assert_eq(at("f")->count, 0);
}

Test(graph, text_may_come_in_any_pieces)
{
	const char *text = " 0)    cat-1     |   3.000 us    |  f();\n";

	for (; *text; text++)
		cr_assert_eq(graph_feed(&graph, text, 1), 0);
	expect("f", 1, 3000, 0);
}

Test(graph, depth_is_bounded)
{
	for (int i = 0; i < 1000; i++)
		feed(" 0)    cat-1     |               |  f() {\n");
	for (int i = 0; i < 1000; i++)
		feed(" 0)    cat-1     |   1.000 us    |  }\n");
	cr_assert_eq(graph.calls.n, GRAPH_MAX_DEPTH + 1);
	cr_assert_eq(graph.left_out, 1000 - GRAPH_MAX_DEPTH);
}
