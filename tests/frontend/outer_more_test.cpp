// SPDX-License-Identifier: Apache-2.0
// Backwards that cross the border of a compiled callable in either direction, and other orders and forms of
// calls and backwards: the same as eager code.
#include "frontend/outer.h"

#include "tests/frontend/same.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT

// Tensors with a history made outside, and where their gradients go.
const Case kHistories[] = {
    {"BackwardInside",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         const Tensor loss = sum(exp(h[0] * 0.1) * l.v);
         loss.backward();
         return Tensors{loss};
       });
       return [f, &l] { l.tell("loss", f({l.w * 2.0})[0].detach()); };
     }},
    {"LeafUsedOnBothSides",
     [](Lab& l) {
       l.w.register_hook(l.hook("hw", 2));
       auto f = l.wrap([&l](const Tensors& h) {
         sum(h[0] * l.w).backward();
         return Tensors{};
       });
       return [f, &l] {
         Tensor h = l.w * l.v;
         h.register_hook(l.hook("h", 3));
         f({h});
       };
     }},
    {"GradientIsReadInside",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         sum(h[0] * h[0]).backward();
         NoGrad guard;
         l.v.copy_(l.w.grad() + 1.0);
         l.tell("read", l.w.grad() * 2.0);
         return Tensors{l.w.grad() * 3.0};
       });
       return [f, &l] { l.tell("y", f({l.w * 2.0})[0]); };
     }},
    {"TwiceAccumulated",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         sum(l.w * 5.0).backward();
         sum(h[0] * h[0]).backward({}, true);
         const Tensor between = l.w.grad() * 1.0;
         sum(l.w * 7.0).backward();
         sum(h[0] * l.v).backward();
         return Tensors{between, l.w.grad() * 1.0};
       });
       return [f, &l] {
         const Tensors y = f({l.w * 2.0});
         l.tell("between", y[0]);
         l.tell("end", y[1]);
       };
     }},
    {"TwoThatShareHistory",
     [](Lab& l) {
       auto f = l.wrap([](const Tensors& h) {
         sum(h[0] * h[1] + h[0]).backward();
         return Tensors{};
       });
       return [f, &l] {
         Tensor a = l.w * 2.0, b = a * l.v;
         a.register_hook(l.hook("a", 2));
         b.register_hook(l.hook("b"));
         f({a, b});
       };
     }},
    {"TwoThatShareHistoryBackwardOutside",
     [](Lab& l) {
       l.w.register_hook(l.hook("hw"));
       auto f = l.wrap([](const Tensors& h) { return Tensors{sum(h[0] * h[1] + h[0])}; });
       return [f, &l] {
         Tensor a = l.w * 2.0, b = a * l.v;
         a.register_hook(l.hook("a", 2));
         b.register_hook(l.hook("b"));
         (f({a, b})[0] + sum(a) + sum(l.w)).backward();
       };
     }},
    {"HooksInsideToo",
     [](Lab& l) {
       l.v.register_hook(l.hook("hv"));
       auto f = l.wrap([&l](const Tensors& h) {
         Tensor a = h[0] * l.v, c = a * a;
         a.register_hook(l.hook("a", 2));
         c.register_hook(l.hook("c", 3));
         sum(c).backward();
         return Tensors{};
       });
       return [f, &l] { f({l.w * 2.0}); };
     }},
    {"HookUsesTensorsOfTheTrace",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         Tensor a = h[0] * l.v, other = exp(l.v * 0.1), total = zeros({2});
         a.register_hook([&](const Tensor& g) {
           total.add_(g * other);
           return g * other;
         });
         sum(a * a).backward();
         return Tensors{total + 1.0};
       });
       return [f, &l] { l.tell("total", f({l.w * 2.0})[0]); };
     }},
    {"RetainedInside",
     [](Lab& l) {
       auto f = l.wrap([](const Tensors& h) {
         const Tensor loss = sum(h[0] * h[0]);
         loss.backward({}, true);
         loss.backward({}, true);
         return Tensors{loss};
       });
       return [f, &l] {
         const Tensor y = f({l.w * 2.0})[0];
         y.backward();
         l.attempt([&] { y.backward(); });
       };
     }},
    {"ConsumedInside",
     [](Lab& l) {
       auto f = l.wrap([](const Tensors& h) {
         const Tensor a = h[0] * h[0], loss = sum(a);
         loss.backward();
         return Tensors{loss, a};
       });
       return [f, &l] {
         const Tensor h = l.w * 2.0;
         const Tensors y = f({h});
         l.attempt([&] { y[0].backward(); });
         l.attempt([&] { sum(y[1]).backward(); });
         l.attempt([&] { sum(h).backward(); });
       };
     }},
    {"WithAGradient",
     [](Lab& l) {
       auto f = l.wrap([](const Tensors& h) {
         (h[0] * h[0]).backward(h[1] * 2.0);
         return Tensors{};
       });
       return [f, &l] { f({l.w * 2.0, vec({1, 10})}); };
     }},
    {"OfAnotherCompiledCall",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * l.v;
         a.register_hook(l.hook("a", 2));
         return Tensors{exp(a * 0.1)};
       });
       auto g = l.wrap([](const Tensors& h) {
         sum(h[0] * h[0]).backward();
         return Tensors{};
       });
       return [f, g] { g(f({})); };
     }},
    {"ChainOfCalls",
     [](Lab& l) {
       l.builds = 2;  // of v as operand and captured, and of others
       auto f = l.wrap([&l](const Tensors& h) { return Tensors{sin(h[0] * l.w), h[0] * l.v}; });
       return [f, &l] {
         const Tensors a = f({l.v}), b = f({a[1]}), c = f({b[0] + a[0]});
         sum(c[0] * c[1] + b[1]).backward();
       };
     }},
    {"HostReadsAround",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         const Tensor a = h[0] * l.v;
         l.tell("a", a.detach());
         sum(a * a).backward();
         return Tensors{l.w.grad() * (sum(a).item() > 0 ? 2.0 : 3.0)};
       });
       return [f, &l] { l.tell("y", f({l.w * 2.0})[0]); };
     }},
    {"WrittenInside",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         Tensor x = h[0];
         x.add_(l.v);
         sum(x * l.v).backward({}, true);
         return Tensors{};
       });
       return [f, &l] {
         Tensor h = l.w * 2.0;
         f({h});
         sum(h).backward();
       };
     }},
    {"BackwardOfAResultInsideAnother",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * l.v;
         a.register_hook(l.hook("a", 2));
         return Tensors{sum(a * a)};
       });
       auto g = l.wrap([&l](const Tensors& y) {
         const Tensor before = exp(l.v * 0.1);
         y[0].backward();
         return Tensors{l.w.grad() * before};
       });
       return [f, g, &l] { l.tell("y", g(f({}))[0]); };
     }},
    {"ViewOfAWrittenBase",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) { return Tensors{sum(h[0] * l.v.view({2, 1}))}; });
       return [f, &l] {
         Tensor base = l.w * 2.0;
         const Tensor shown = base.view({2, 1});
         base.mul_(l.w);
         f({shown})[0].backward();
       };
     }},
    {"HooksOfAnOperandWrittenInside",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         Tensor t = h[0];
         t.mul_(3.0);
         return Tensors{};
       });
       return [f, &l] {
         Tensor h = l.w * 2.0;
         h.register_hook(l.hook("h", 2));
         f({h});
         h.register_hook(l.hook("after", 5));
         sum(h * l.v).backward();
       };
     }},
    {"SteppedInside",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         sum(h[0] * h[0]).backward();
         NoGrad guard;
         l.w.add_(l.w.grad(), -0.125);
         l.w.set_grad({});
         return Tensors{l.w * 1.0};
       });
       return [f, &l] {
         l.tell("y", f({l.w * 2.0})[0]);
         l.tell("w", l.w.detach());
       };
     }},
    {"HookCallsACompiledCall",
     [](Lab& l) {
       auto scale = l.wrap([&l](const Tensors& g) { return Tensors{g[0] * l.v.detach()}; });
       auto f = l.wrap([&l, scale](const Tensors& h) {
         Tensor a = h[0] * l.v;
         a.register_hook([scale](const Tensor& g) { return scale({g})[0]; });
         const Tensor loss = sum(a * a);
         loss.backward({}, true);
         return Tensors{loss};
       });
       return [f, &l] { f({l.w * 2.0})[0].backward(); };
     }},
    {"HookThrowsInside",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         Tensor a = h[0] * l.v;
         a.register_hook([](const Tensor&) -> Tensor { throw Error(ErrorKind::invalid, "no"); });
         sum(a * a).backward();
         return Tensors{};
       });
       return [f, &l] {
         const Tensor h = l.w * 2.0;
         l.attempt([&] { f({h}); });
         l.tell("after", l.w.grad());
         sum(h).backward();
       };
     }},
    {"BackwardOfTheOperandItself",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         const Tensor y = h[0] * 2.0;
         sum(h[0]).backward({}, true);
         h[0].backward(vec({1, 1}));
         return Tensors{y};
       });
       return [f, &l] { l.tell("y", f({l.w * 2.0})[0].detach()); };
     }},
};

// Calls and backwards in other orders and forms.
const Case kForms[] = {
    {"TwoResultsInEitherOrder",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         return Tensors{sum(l.w * 2.0), sum(l.v * l.w), sum(exp(l.v))};
       });
       return [f] {
         Tensors y = f({});
         for (int i : {2, 0, 1}) y[static_cast<size_t>(i)].backward();
         y = f({});
         for (int i : {1, 2, 0}) y[static_cast<size_t>(i)].backward();
       };
     }},
    {"TwoResultsThatShareHistory",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         const Tensor a = l.w * l.v;
         return Tensors{sum(a * 2.0), sum(a * a), sum(l.v * 3.0)};
       });
       return [f, &l] {
         Tensors y = f({});
         y[0].backward();
         l.attempt([&] { y[1].backward(); });
         l.attempt([&] { y[2].backward(); });
         y = f({});
         y[1].backward({}, true);
         y[0].backward();
         l.attempt([&] { y[0].backward(); });
       };
     }},
    {"SumOfTwoCalls",
     [](Lab& l) {
       l.w.register_hook(l.hook("hw"));
       auto f = l.wrap([&l](const Tensors& x) { return Tensors{sum(exp(l.w * x[0] * 0.1))}; });
       return [f] { (f({vec({1, 2})})[0] + f({vec({3, 4})})[0]).backward(); };
     }},
    {"ReturnedTwice",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         const Tensor y = l.w * l.v;
         return Tensors{y, y};
       });
       return [f] {
         const Tensors y = f({});
         sum(y[0] * 2.0 + y[1]).backward();
       };
     }},
    {"ResultIsAViewOfAParameter",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) { return Tensors{l.w.view({2, 1}), l.v}; });
       return [f, &l] {
         const Tensors y = f({});
         sum(y[0] * y[0] + y[1]).backward();
         Tensor t = y[0];
         l.attempt([&] { t.mul_(2.0); });
         l.tell("w", l.w.detach());
       };
     }},
    {"ResultIsAViewOfAnother",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         const Tensor a = l.w * l.v;
         return Tensors{a, a.view({2, 1})};
       });
       return [f, &l] {
         Tensors y = f({});
         y[1].mul_(2.0);
         l.tell("a", y[0].detach());
         sum(y[0] * 3.0).backward();
       };
     }},
    {"WithAGradientOfAVector",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) { return Tensors{l.w * l.v}; });
       return [f, &l] {
         f({})[0].backward(vec({1, 10}));
         l.attempt([&] { f({})[0].backward(); });
         l.attempt([&] { f({})[0].backward(vec({1})); });
       };
     }},
    {"NoGradAndDetachInside",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor mask;
         {
           NoGrad guard;
           mask = l.w * 2.0;
         }
         const Tensor a = l.v * l.w;
         return Tensors{a * mask * a.detach(), a.detach(), mask};
       });
       return [f, &l] {
         const Tensors y = f({});
         l.told += fmt::format(" {}{}{}", y[0].requires_grad(), y[1].requires_grad(), y[2].requires_grad());
         sum(y[0]).backward();
       };
     }},
    {"MixedDtypes",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor d = l.w.to(DType::f64) * l.v.to(DType::f64);
         d.register_hook(l.hook("d", 2));
         return Tensors{sum(d), exp(l.w.to(DType::f64))};
       });
       return [f] {
         const Tensors y = f({});
         (y[0] + sum(y[1])).backward();
       };
     }},
    {"OperandWrittenInBetween",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& x) { return Tensors{sum(exp(l.w * x[0])), sum(l.w * x[1])}; });
       return [f, &l] {
         Tensor a = vec({0.1f, 0.2f}), b = vec({0.3f, 0.4f});
         Tensors y = f({a, b});
         a.add_(ones({2}));
         y[1].backward();
         l.attempt([&] { y[0].backward(); });
         y = f({a, b});
         b.add_(ones({2}));
         l.attempt([&] { y[1].backward(); });
       };
     }},
    {"ResultWrittenInBetween",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         const Tensor a = exp(l.w * l.v * 0.1);
         return Tensors{a, sum(a * 2.0), l.w + l.v};
       });
       return [f, &l] {
         Tensors y = f({});
         {
           NoGrad guard;
           y[0].mul_(2.0);
           y[2].mul_(2.0);
         }
         sum(y[2]).backward();
         l.attempt([&] { y[1].backward(); });
       };
     }},
    {"LeafMadeInside",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor x = (l.w * 2.0).detach();
         x.requires_grad_();
         x.register_hook(l.hook("x", 2));
         return Tensors{x, sum(x * l.v * x)};
       });
       return [f, &l] {
         const Tensors y = f({});
         y[1].backward();
         l.tell("x", y[0].grad());
       };
     }},
    {"HistoryGivenToABuffer",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& x) {
         Tensor t = x[0];
         t.copy_(l.w * l.v);
         return Tensors{};
       });
       return [f, &l] {
         Tensor buffer = zeros({2});
         f({buffer});
         l.told += fmt::format(" {}", buffer.requires_grad());
         sum(buffer * buffer).backward();
       };
     }},
    {"HookThenWrite",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors&) {
         Tensor a = l.w * 2.0;
         a.register_hook(l.hook("a", 2));
         a.mul_(l.v);
         return Tensors{a};
       });
       return [f, &l] {
         Tensor y = f({})[0];
         y.register_hook(l.hook("later", 5));
         y.add_(l.w);
         y.register_hook(l.hook("last", 7));
         sum(y).backward();
       };
     }},
    {"OneTensorWhereTwoWereRecorded",
     [](Lab& l) {
       l.builds = 2;
       auto f = l.wrap([](const Tensors& h) {
         sum(h[0] * h[1]).backward();
         return Tensors{};
       });
       return [f, &l] {
         f({l.w, l.v});
         l.tell_grads();
         f({l.w, l.w});
       };
     }},
    {"OverlappingOperandsWhereOthersWereRecorded",
     [](Lab& l) {
       l.builds = 2;
       auto f = l.wrap([](const Tensors& h) {
         const Tensor before = h[0] * h[1];
         Tensor t = h[0];
         t.add_(ones({2}));
         return Tensors{before, h[0] * h[1]};
       });
       return [f, &l] {
         const Tensor p = vec({1, 2}), q = vec({3, 4});
         for (const Tensor& second : {q, p.view({2})})
           for (const Tensor& t : f({p, second})) l.tell("y", t);
       };
     }},
    {"OperandsThatShareMemory",
     [](Lab& l) {
       auto f = l.wrap([](const Tensors& h) { return Tensors{matmul(h[0], h[1])}; });
       return [f, &l] {
         const Tensor a = matmul(l.w.view({2, 1}), l.v.view({1, 2}));
         sum(f({a.transpose(0, 1), a})[0]).backward();
       };
     }},
    {"ResultsAreOperands",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) { return Tensors{h[0], l.w, h[0] * 2.0}; });
       return [f, &l] {
         const Tensors y = f({l.w * 2.0});
         sum(y[0] * y[1] + y[2]).backward();
       };
     }},
    {"Recurrent",
     [](Lab& l) {
       l.builds = 2;
       auto f = l.wrap([&l](const Tensors& h) {
         Tensor a = sin(h[0] * l.w + l.v);
         a.register_hook(l.hook("a"));
         return Tensors{a};
       });
       return [f] {
         Tensor h = zeros({2}), total = zeros({});
         for (int i = 0; i < 4; ++i) {
           h = f({h})[0];
           total = total + sum(h);
         }
         total.backward();
       };
     }},
    {"WritesThroughReturnedViews",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& h) {
         const Tensor a = l.w * l.v;
         return Tensors{a, slice(a, 0, 1, 2), a.view({2, 1}), h[0].view({2, 1}), a.detach()};
       });
       return [f, &l] {
         const Tensor h = l.w + 2.0;
         Tensors y = f({h});
         y[1].fill_(7);
         y[3].mul_(l.v.view({2, 1}));
         l.tell("a", y[4]);
         sum(y[0] * 3.0 + h + y[2].view({2})).backward();
       };
     }},
    {"NestedCalls",
     [](Lab& l) {
       auto f = l.wrap([&l](const Tensors& x) {
         Tensor a = x[0] * l.w;
         a.register_hook(l.hook("a", 2));
         return Tensors{a};
       });
       auto g = l.wrap([&l, f](const Tensors& x) { return Tensors{sum(f(x)[0] * f({l.v})[0])}; });
       return [g] { g({vec({1, 2})})[0].backward(); };
     }},
};

KILN_SAME_AS_EAGER(Histories, kHistories);
KILN_SAME_AS_EAGER(Forms, kForms);

}  // namespace
}  // namespace kiln
