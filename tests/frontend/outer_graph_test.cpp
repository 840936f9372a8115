// SPDX-License-Identifier: Apache-2.0
// Hooks on what is made inside a compiled callable, and a backward outside: the same as eager code.
#include "frontend/outer_graph.h"

#include "tests/frontend/same.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT

// Hooks on what is made inside, backward outside.
const Case kHooks[] = {
    {"OneHook",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor h = l.w * l.v;
         h.register_hook(l.hook("h", 10));
         return Tensors{sum(exp(h * 0.1))};
       });
       return [f] { f({})[0].backward(); };
     }},
    {"HooksThatSeeEachOther",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * 2.0, b = a * l.v, c = sin(b);
         c.register_hook(l.hook("c", 3));
         c.register_hook(l.hook("c2"));
         c.register_hook(l.hook("c3", 2));
         a.register_hook(l.hook("a", 5));
         b.register_hook(l.hook("b"));
         return Tensors{sum(c + a)};
       });
       return [f] { f({})[0].backward(); };
     }},
    {"OrderWithHooksOfLeaves",
     [](Lab& l) {
       l.w.register_hook(l.hook("hw", 2));
       l.v.register_hook(l.hook("hv"));
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * 2.0, b = a * l.v, c = b + l.v;
         for (auto [t, n] : {std::pair{&a, "a"}, {&b, "b"}, {&c, "c"}}) t->register_hook(l.hook(n));
         return Tensors{sum(c * l.w)};
       });
       return [f] { f({})[0].backward(); };
     }},
    {"NeverReached",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * 2.0, b = l.v * 3.0;
         a.register_hook(l.hook("a", 2));
         b.register_hook(l.hook("b", 2));
         return Tensors{sum(a), sum(b)};
       });
       return [f] { f({})[0].backward(); };
     }},
    {"RetainedTwice",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * l.v;
         a.register_hook(l.hook("a", 2));
         return Tensors{sum(a * a)};
       });
       return [f, &l] {
         const Tensor y = f({})[0];
         y.backward({}, true);
         y.backward({}, true);
         y.backward();
         l.attempt([&] { y.backward(); });
       };
     }},
    {"OnResultsAddedLater",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * 2.0, b = a * l.v;
         a.register_hook(l.hook("a", 2));
         return Tensors{a, sum(b)};
       });
       return [f, &l] {
         Tensors y = f({});
         y[0].register_hook(l.hook("a later", 3));
         y[1].register_hook(l.hook("b", 5));
         (sum(y[0]) + y[1]).backward();
       };
     }},
    {"OfADroppedResult",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * 2.0;
         return Tensors{a, sum(a * l.v)};
       });
       return [f, &l] {
         Tensors y = f({});
         y[0].register_hook(l.hook("a", 3));
         y[0] = {};
         y[1].backward();
       };
     }},
    {"Removed",
     [](Lab& l) {
       auto handle = std::make_shared<HookHandle>();
       auto f = l.wrap([&l, handle](const Tensors&) {
         Tensor a = l.w * 2.0;
         *handle = a.register_hook(l.hook("a", 3));
         a.register_hook(l.hook("a2"));
         return Tensors{sum(a)};
       });
       return [f, handle] {
         const Tensor y = f({})[0];
         handle->remove();
         y.backward();
       };
     }},
    {"TwoCallsInFlight",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& x) {
         Tensor a = l.w * x[0];
         a.register_hook(l.hook("a", 2));
         return Tensors{sum(a * a)};
       });
       return [f] {
         const Tensor p = f({vec({1, 2})})[0], q = f({vec({3, 4})})[0];
         p.backward();
         q.backward();
       };
     }},
    {"ThrowsThenAgain",
     [](Lab& l) {
       auto angry = std::make_shared<bool>();
       auto f = l.wrap([&l, angry](const Tensors&) {
         Tensor a = l.w * l.v;
         a.register_hook([angry](const Tensor& g) -> Tensor {
           if (*angry) throw Error(ErrorKind::invalid, "no");
           return g * 2.0;
         });
         return Tensors{sum(a * a)};
       });
       return [f, &l, angry] {
         const Tensor y = f({})[0];
         *angry = true;
         l.attempt([&] { y.backward(); });
         l.tell("after", l.w.grad());
         *angry = false;
         y.backward();
       };
     }},
    {"HookOfAnotherType",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * l.v;
         a.register_hook([](const Tensor&) { return zeros({3}); });
         return Tensors{sum(a)};
       });
       return [f, &l] {
         const Tensor y = f({})[0];
         l.attempt([&] { y.backward(); });
       };
     }},
    {"ReturnsAView",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = matmul(l.w.view({2, 1}), l.v.view({1, 2}));
         a.register_hook([&l](const Tensor& g) {
           l.tell("a", g);
           return g.transpose(0, 1);
         });
         return Tensors{sum(a * mat({1, 2, 3, 4}, {2, 2}))};
       });
       return [f] { f({})[0].backward(); };
     }},
};

KILN_SAME_AS_EAGER(Hooks, kHooks);

}  // namespace
}  // namespace kiln
