// SPDX-License-Identifier: Apache-2.0
#include "codegen/program.h"

#include <chrono>
#include <set>

#include "codegen/compile_nvrtc.h"
#include "codegen/kernel_cache.h"
#include "codegen/program_entry.h"
#include "codegen/program_key.h"
#include "ir/base/dump.h"
#include "ir/base/hash.h"
#include "ir/rewrite.h"

namespace kiln {

namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Sums may take products unrounded, but for those of mul_rounded.
constexpr const char* kContract = "-ffp-contract=fast-honor-pragmas";

void dump_sources(const LoweredProgram& p) {
  dump("source", [&] {
    std::string s;
    for (const KernelSource& k : p.kernels) s += k.text + "\n";
    return s;
  });
}

std::string modules_text(const KernelImage& image) {
  std::string s = fmt::format("target {}\n", image.target);
  for (const CudaModule& m : image.modules) {
    s += fmt::format("{}: {} bytes of source, {} of machine code\n", m.name, m.source.size(), m.cubin.size());
    for (const CudaKernel& k : m.kernels)
      s += fmt::format("  {}: {} threads, {} registers, {} bytes spilled, {} shared\n", k.symbol, k.threads,
                       k.registers, k.spill_bytes, k.static_shared);
  }
  return s;
}

/// What a plan and its kernels hold, wherever they come from.
void dump_result(const CompiledProgram& p) {
  dump("plan", [&] { return print(p.plan); });
  if (!p.image.modules.empty()) dump("image", [&] { return modules_text(p.image); });
  if (p.image.bytes.empty()) return;
  dump("image", [&] {
    std::string s = fmt::format("target {}\n{} bytes, {} kernels\n", p.image.target, p.image.bytes.size(),
                                p.image.symbols.size());
    for (const std::string& symbol : p.image.symbols) s += symbol + "\n";
    return s;
  });
  dump(
      "image", [&] { return p.image.bytes; }, "so");
}

std::vector<CpuSource> cpu_sources(const std::vector<KernelSource>& kernels, const KernelLines& lines,
                                   std::vector<std::string>& names) {
  std::vector<CpuSource> sources;
  for (const KernelSource& k : kernels) {
    CpuSource& source = sources.emplace_back(CpuSource{k.name, k.text, {kContract}});
    for (const std::string& symbol : k.symbols)
      if (const auto found = lines.find(symbol); found != lines.end()) source.lines.insert(*found);
    names.insert(names.end(), k.symbols.begin(), k.symbols.end());
  }
  return sources;
}

/// Values numbered in the order of the text, as the key has them: what is made of `g` must depend on its key
/// alone, or two processes would write different entries under one.
Graph numbered_as_printed(const Graph& g) {
  detail::Rewrite r(g);
  for (const Node& n : g.nodes) r.set(n.out, r.out.add_node(n.op, r.mapped(n.in), n.attrs, n.origin));
  return r.finish();
}

/// Links what was compiled and stores the whole, unless another process does so at this moment.
void link_program(std::span<const std::string> objects, std::span<const std::string> names,
                  const CpuTarget& target, DiskCache* cache, const std::string& key, CompiledProgram& out,
                  BuildCost& cost) {
  FileLock claim;
  if (cache) claim = cache->claim(kPlanKind, key, true);
  CompiledProgram made_elsewhere;
  if (cache && detail::load_program(*cache, key, true, made_elsewhere)) {
    out.plan = std::move(made_elsewhere.plan);
    out.image = std::move(made_elsewhere.image);
    return;
  }
  if (!objects.empty()) out.image = link_image(objects, names, target, cost);
  if (cache) cache->store(kPlanKind, key, detail::pack_program(out));
}

/// Kernels of CUDA together in sources of `together`, so that the prelude is read seldom.
std::vector<CudaModule> cuda_modules(std::vector<KernelSource> kernels, size_t together) {
  std::vector<CudaModule> out;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (i % together == 0) out.emplace_back();
    CudaModule& m = out.back();
    m.source += kernels[i].text;
    m.kernels.insert(m.kernels.end(), kernels[i].cuda.begin(), kernels[i].cuda.end());
  }
  for (CudaModule& m : out) m.name = "m_" + hash128(m.source).hex() + ".cu";
  return out;
}

/// One program on its way through the cache, and what it costs.
class Build {
 public:
  Build(const Graph& g, const std::vector<ExternalLayout>& layouts, const Target& target,
        const LowerOptions& options, DiskCache* cache, int threads, const std::function<void()>& go_on)
      : g_(g),
        layouts_(layouts),
        target_(target),
        options_(options),
        cache_(cache),
        threads_(threads),
        go_on_(go_on) {}

  CompiledProgram cpu() {
    const auto& target = std::get<CpuTarget>(target_);
    const std::string key = program_key(g_, layouts_, target_, options_).str();
    if (found(key)) return std::move(out_);
    const LoweredProgram lowered = lower_here();
    std::vector<std::string> names;
    const std::vector<CpuSource> sources = cpu_sources(lowered.kernels, kernel_lines(g_, out_.plan), names);
    const std::vector<std::string> objects = make_objects(sources, target, cache_, threads_, cost_, go_on_);
    link_program(objects, names, target, cache_, key, out_, cost_);
    return finish();
  }

  /// Sources are one entry, sources with machine code another: who needs the latter starts from the former.
  CompiledProgram cuda(bool machine_code) {
    const std::string arch = std::get<CudaTarget>(target_).arch;
    std::string key;
    if (machine_code) {
      key = program_key(g_, layouts_, target_, options_, true).str();
      if (found(key)) return std::move(out_);
    }
    const std::string sources = program_key(g_, layouts_, target_, options_).str();
    const bool lowered = found(sources);
    if (!lowered) {
      out_.image.target = arch;
      out_.image.modules = cuda_modules(lower_here().kernels, kTogether);
      if (cache_) cache_->store(kPlanKind, sources, detail::pack_program(out_));
    }
    if (!machine_code) return lowered ? std::move(out_) : finish();
    out_.stats.from_cache = false;
    compile_cuda(out_.image.modules, arch, cache_, threads_, &cost_, go_on_, kernel_lines(g_, out_.plan));
    if (cache_) cache_->store(kPlanKind, key, detail::pack_program(out_));
    return finish();
  }

 private:
  // The 50 kernels of gpt-small take NVRTC 13.0 8.4 s of one CPU one by one, 7.2 s in fours, 7.1 s in eights
  // and 6.8 s in sixteens; larger sources leave threads without work.
  static constexpr size_t kTogether = 8;

  bool found(const std::string& key) {
    if (!cache_ || !detail::load_program(*cache_, key, false, out_)) return false;
    out_.stats.from_cache = true;
    // A warm start lowers nothing; who wants to see it lowered does so for that alone.
    if (dumping("partition") || dumping("loops") || dumping("source"))
      dump_sources(lower(g_, layouts_, target_, options_));
    return true;
  }

  LoweredProgram lower_here() {
    const auto start = std::chrono::steady_clock::now();
    LoweredProgram lowered = lower(numbered_as_printed(g_), layouts_, target_, options_);
    out_.stats.lower_ms = ms_since(start);
    dump_sources(lowered);
    out_.plan = std::move(lowered.plan);
    out_.stats.kernels = static_cast<int>(lowered.kernels.size());
    return lowered;
  }

  CompiledProgram finish() {
    out_.stats.launches = static_cast<int>(out_.plan.launches.size());
    out_.stats.compiled = cost_.compiled;
    out_.stats.cached = cost_.cached;
    out_.stats.compile_ms = cost_.compile_ms;
    out_.stats.link_ms = cost_.link_ms;
    return std::move(out_);
  }

  const Graph& g_;
  const std::vector<ExternalLayout>& layouts_;
  const Target& target_;
  const LowerOptions& options_;
  DiskCache* const cache_;
  const int threads_;
  const std::function<void()>& go_on_;
  CompiledProgram out_;
  BuildCost cost_;
};

}  // namespace

CompiledProgram compile_program(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                const Target& target, const LowerOptions& options, DiskCache* cache,
                                int threads, const std::function<void()>& go_on, bool machine_code) {
  const auto start = std::chrono::steady_clock::now();
  dump("grad", [&] { return print(g); });
  Build build(g, layouts, target, options, cache, threads, go_on);
  CompiledProgram out = cuda_target(target) ? build.cuda(machine_code) : build.cpu();
  name_plan(g, out.plan);
  dump_result(out);
  out.stats.total_ms = ms_since(start);
  return out;
}

CompiledBatch compile_batch(std::span<const Graph> graphs, const Target& target, const LowerOptions& options,
                            int threads, std::span<const std::vector<ExternalLayout>> layouts) {
  CompiledBatch out;
  // Many kernels to a source: most of a compile is reading the prelude.
  constexpr size_t kTogether = 24;
  std::vector<KernelSource> kernels;
  std::set<std::string> seen;
  KILN_ASSERT(layouts.empty() || layouts.size() == graphs.size(), "layouts of {} graphs for {}",
              layouts.size(), graphs.size());
  for (size_t i = 0; i < graphs.size(); ++i) {
    LoweredProgram p =
        lower(graphs[i], layouts.empty() ? std::vector<ExternalLayout>{} : layouts[i], target, options);
    out.plans.push_back(std::move(p.plan));
    name_plan(graphs[i], out.plans.back());
    for (KernelSource& k : p.kernels)
      if (seen.insert(k.name).second) kernels.push_back(std::move(k));
  }
  if (const CudaTarget* cuda = cuda_target(target)) {
    out.image.target = cuda->str();
    out.image.modules = cuda_modules(std::move(kernels), kTogether);
    return out;
  }
  std::vector<CpuSource> sources;
  std::vector<std::string> names;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (i % kTogether == 0) sources.push_back({fmt::format("batch_{}.cpp", sources.size()), "", {kContract}});
    sources.back().text += kernels[i].text;
    names.insert(names.end(), kernels[i].symbols.begin(), kernels[i].symbols.end());
  }
  if (!sources.empty())
    out.image = build_image(sources, names, std::get<CpuTarget>(target), nullptr, threads);
  return out;
}

}  // namespace kiln
