/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets and instructions of each version (lstate.h, lobject.h, lopcodes.h). They are the same in
 * all builds for 64-bit machines, unless luaconf.h was changed.
 */
#include "agent/runtime/lua/lua.h"

#include <errno.h>

#define BIT(op) (1ULL << ((op)&63))
#define BITS(from, to) ((2ULL << ((to)&63)) - BIT(from)) /* both in the same word */

static const struct lua_event events_51[] = {
	{5, 6, "__index"},    {7, 7, "__newindex"}, {9, 9, "__newindex"}, {11, 11, "__index"},
	{12, 12, "__add"},    {13, 13, "__sub"},    {14, 14, "__mul"},	  {15, 15, "__div"},
	{16, 16, "__mod"},    {17, 17, "__pow"},    {18, 18, "__unm"},	  {20, 20, "__len"},
	{21, 21, "__concat"}, {23, 23, "__eq"},	    {24, 24, "__lt"},	  {25, 25, "__le"},
	{255, 255, NULL},
};

static const struct lua_event events_53[] = {
	{6, 7, "__index"}, {8, 8, "__newindex"}, {10, 10, "__newindex"}, {12, 12, "__index"},
	{13, 13, "__add"}, {14, 14, "__sub"},	 {15, 15, "__mul"},	 {16, 16, "__mod"},
	{17, 17, "__pow"}, {18, 18, "__div"},	 {19, 19, "__idiv"},	 {20, 20, "__band"},
	{21, 21, "__bor"}, {22, 22, "__bxor"},	 {23, 23, "__shl"},	 {24, 24, "__shr"},
	{25, 25, "__unm"}, {26, 26, "__bnot"},	 {28, 28, "__len"},	 {29, 29, "__concat"},
	{31, 31, "__eq"},  {32, 32, "__lt"},	 {33, 33, "__le"},	 {255, 255, NULL},
};

static const struct lua_event events_54[] = {
	{11, 14, "__index"}, {15, 18, "__newindex"}, {20, 20, "__index"}, {46, 48, NULL},
	{49, 49, "__unm"},   {50, 50, "__bnot"},     {52, 52, "__len"},	  {53, 53, "__concat"},
	{54, 54, "__close"}, {57, 57, "__eq"},	     {58, 58, "__lt"},	  {59, 59, "__le"},
	{60, 61, "__eq"},    {62, 62, "__lt"},	     {63, 63, "__le"},	  {64, 64, "__lt"},
	{65, 65, "__le"},    {70, 70, "__close"},    {255, 255, NULL},
};

static const struct lua_ops ops_51 = {
	.events = events_51,
	.move = 0,
	.get_upvalue = 4,
	.get_global = 5,
	.get_table = 6,
	.get_field = 0xff,
	.self = 11,
	.call = 28,
	.tail_call = 29,
	.iterate = 33,
	.jump = 22,
	.closure = 36,
	.set_list = 34,
	.writes = {BITS(0, 2) | BITS(4, 6) | BIT(10) | BITS(12, 21) | BIT(27) | BIT(36)},
	.writes_from = {BIT(3) | BIT(11) | BITS(28, 29) | BITS(31, 33) | BIT(37)},
};

static const struct lua_ops ops_53 = {
	.events = events_53,
	.move = 0,
	.get_upvalue = 5,
	.get_global = 6,
	.get_table = 7,
	.get_field = 0xff,
	.self = 12,
	.call = 36,
	.tail_call = 37,
	.iterate = 41,
	.jump = 30,
	.writes = {BITS(0, 3) | BITS(5, 7) | BIT(11) | BITS(13, 29) | BIT(35) | BIT(44)},
	.writes_from = {BIT(4) | BIT(12) | BITS(36, 37) | BITS(39, 42) | BIT(45)},
};

static const struct lua_ops ops_54 = {
	.events = events_54,
	.move = 0,
	.get_upvalue = 9,
	.get_global = 11,
	.get_table = 12,
	.get_field = 14,
	.self = 20,
	.call = 68,
	.tail_call = 69,
	.iterate = 76,
	.jump = 56,
	.wide = true,
	.writes = {BITS(0, 7) | BIT(9) | BITS(11, 14) | BIT(19) | BITS(21, 45) | BITS(49, 53),
		   BIT(67) | BIT(79)},
	.writes_from = {BIT(8) | BIT(20), BITS(68, 69) | BITS(73, 77) | BITS(80, 81)},
};

static const struct lua_learned v51 = {
	.bpf = {.is_51 = 1,
		.state_ci = 40,
		.state_pc = 48,
		.state_last = 56,
		.state_stack = 64,
		.state_base_ci = 80,
		.state_jump = 168,
		.ci_bytes = 40,
		.ci_func = 8,
		.ci_pc = 24,
		.closure_proto = 32,
		.proto_code = 24,
		.proto_source = 64,
		.proto_n_code = 80,
		.proto_lines = 96,
		.op_call = 28,
		.op_tailcall = 29},
	.objects = {.proto_k = 16,
		    .proto_lines = 40,
		    .proto_variables = 48,
		    .proto_upvalues = 56,
		    .proto_n_upvalues = 72,
		    .proto_n_variables = 92,
		    .upvalue_bytes = 8,
		    .string_data = 24},
	.ops = &ops_51,
};

static const struct lua_learned v53 = {
	.bpf = {.state_ci = 32,
		.state_last = 48,
		.state_stack = 56,
		.state_jump = 88,
		.state_base_ci = 96,
		.ci_func = 0,
		.ci_previous = 16,
		.ci_pc = 40,
		.ci_status = 66,
		.c_mask = 2,
		.c_value = 0,
		.fresh_mask = 8,
		.fresh_value = 8,
		.tail_mask = 32,
		.closure_proto = 24,
		.proto_n_code = 24,
		.proto_lines = 40,
		.proto_code = 56,
		.proto_source = 104},
	.objects = {.proto_n_upvalues = 16,
		    .proto_n_variables = 36,
		    .proto_k = 48,
		    .proto_lines = 72,
		    .proto_variables = 80,
		    .proto_upvalues = 88,
		    .upvalue_bytes = 16,
		    .string_data = 24},
	.ops = &ops_53,
};

static const struct lua_learned v54 = {
	.bpf = {.state_ci = 32,
		.state_last = 40,
		.state_stack = 48,
		.state_jump = 88,
		.state_base_ci = 96,
		.ci_func = 0,
		.ci_previous = 16,
		.ci_pc = 32,
		.ci_status = 62,
		.c_mask = 2,
		.c_value = 2,
		.fresh_mask = 4,
		.fresh_value = 4,
		.tail_mask = 32,
		.closure_proto = 24,
		.proto_n_code = 24,
		.proto_lines = 44,
		.proto_code = 64,
		.proto_source = 112},
	.objects = {.proto_n_upvalues = 16,
		    .proto_n_variables = 36,
		    .proto_n_abs_lines = 40,
		    .proto_k = 56,
		    .proto_upvalues = 80,
		    .proto_lines = 88,
		    .proto_abs_lines = 96,
		    .proto_variables = 104,
		    .upvalue_bytes = 16,
		    .string_data = 24},
	.ops = &ops_54,
};

/* What differs between the releases of a version. */
static void adjust(struct lua_learned *l)
{
	struct lua_binary *b = &l->bpf;

	if (l->version == 0x0503 && l->release < 2) {
		/* The flag is that of functions that run in their caller's call. */
		b->fresh_value = 0;
	} else if (l->version == 0x0504 && l->release < 2) {
		/* Each function has a call of the loop. */
		b->fresh_mask = b->fresh_value = 0;
		b->tail_mask = 16;
	} else if (l->version == 0x0505) {
		b->ci_status = 60;
		b->c_mask = b->c_value = 1u << 15;
		b->fresh_mask = b->fresh_value = 1u << 16;
		b->tail_mask = 1u << 22;
	}
	if (l->version == 0x0504 && l->release == 0) {
		b->state_last = 48;
		b->state_stack = 56;
	} else if (l->version == 0x0504 && l->release < 3) {
		b->state_jump = 80;
		b->state_base_ci = 88;
	}
}

int lua_offsets(struct lua_learned *l)
{
	u32 version = l->version, release = l->release;

	if (version == 0x0501)
		*l = v51;
	else if (version == 0x0503)
		*l = v53;
	else if (version == 0x0504 || version == 0x0505)
		*l = v54;
	else
		return -ENOTSUP;
	l->version = version;
	l->release = release;
	adjust(l);
	return 0;
}
