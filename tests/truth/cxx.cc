/* SPDX-License-Identifier: Apache-2.0 */
/* Exceptions thrown through many frames, templates, virtual calls, lambdas, and inlined members. */
#include "truth.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <vector>

namespace cxx
{

struct scope {
	explicit scope(const char *name, bool inlined = false)
	    : was(inlined ? truth_enter_inlined(name) : truth_enter(name))
	{
	}
	~scope()
	{
		truth_leave(&was);
	}
	truth_node *was;
};

NOINLINE void thrower(int depth, long payload)
{
	scope s("cxx::thrower");
	volatile char frame[64];

	frame[depth % 64] = (char)payload;
	if (!depth) {
		spin(100000);
		throw std::runtime_error("as planned");
	}
	thrower(depth - 1, payload + frame[depth % 64]);
	__asm__ volatile("" ::: "memory");
}

struct shape {
	virtual ~shape() = default;
	virtual void work(long n) = 0;
};

struct square final : shape {
	NOINLINE void work(long n) override
	{
		scope s("cxx::square::work");
		spin(n);
	}
};

struct circle final : shape {
	INLINED void radius(long n)
	{
		scope s("cxx::circle::radius", true);
		spin(n);
	}
	NOINLINE void work(long n) override
	{
		scope s("cxx::circle::work");
		radius(n);
	}
};

template <typename T> NOINLINE void apply(T &&fn)
{
	scope s("cxx::apply");
	fn();
	__asm__ volatile("" ::: "memory");
}

NOINLINE void catcher()
{
	scope s("cxx::catcher");
	try {
		thrower(20, 1);
	} catch (const std::exception &e) {
		spin(100000);
	}
}

NOINLINE void shapes()
{
	scope s("cxx::shapes");
	square a;
	circle b;
	shape *all[] = {&a, &b};

	for (shape *x : all) {
		__asm__ volatile("" : "+r"(x));
		x->work(200000);
	}
}

NOINLINE void functions()
{
	scope s("cxx::functions");
	std::function<void()> fn = [] { spin(200000); };

	apply(fn);
}

} // namespace cxx

int main(int argc, char **argv)
{
	truth_init(argc, argv);
	{
		TRUTH();
		while (truth_running()) {
			cxx::catcher();
			cxx::shapes();
			cxx::functions();
		}
	}
	truth_finish();
	return 0;
}
