// SPDX-License-Identifier: Apache-2.0
#include "codegen/program.h"

#include <chrono>
#include <set>

#include "codegen/kernel_cache.h"
#include "codegen/program_key.h"
#include "ir/base/dump.h"
#include "ir/rewrite.h"

namespace kiln {

namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void dump_sources(const LoweredProgram& p) {
  dump("source", [&] {
    std::string s;
    for (const KernelSource& k : p.kernels) s += k.text + "\n";
    return s;
  });
}

/// Counted strings, one after the other. Damage is the cache's to find; a length that does not fit is a miss.
std::string pack(const Plan& plan, const KernelImage& image, int kernels) {
  std::string out;
  const auto put = [&](std::string_view s) {
    const uint64_t n = s.size();
    out.append(reinterpret_cast<const char*>(&n), sizeof n).append(s);
  };
  put(serialize(plan));
  put(image.target);
  put(image.bytes);
  put(std::to_string(kernels));
  for (const std::string& s : image.symbols) put(s);
  return out;
}
bool unpack(std::string_view bytes, CompiledProgram& out) {
  std::vector<std::string_view> parts;
  while (!bytes.empty()) {
    uint64_t n = 0;
    if (bytes.size() < sizeof n) return false;
    std::copy_n(bytes.data(), sizeof n, reinterpret_cast<char*>(&n));
    bytes.remove_prefix(sizeof n);
    if (bytes.size() < n) return false;
    parts.push_back(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
  if (parts.size() < 4) return false;
  out.plan = deserialize_plan(parts[0]);
  out.image.target = parts[1];
  out.image.bytes = parts[2];
  out.stats.kernels = std::stoi(std::string(parts[3]));
  for (size_t i = 4; i < parts.size(); ++i) out.image.symbols.emplace_back(parts[i]);
  return true;
}

/// What a plan and its kernels hold, wherever they come from.
void dump_result(const CompiledProgram& p) {
  dump("plan", [&] { return print(p.plan); });
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

std::vector<CpuSource> cpu_sources(const std::vector<KernelSource>& kernels,
                                   std::vector<std::string>& names) {
  std::vector<CpuSource> sources;
  for (const KernelSource& k : kernels) {
    sources.push_back({k.name, k.text, {"-ffp-contract=fast"}});
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

bool load_program(DiskCache& cache, const std::string& key, bool again, CompiledProgram& out) {
  const auto hit = cache.load(kPlanKind, key, again);
  CompiledProgram found;
  if (!hit || !unpack(*hit, found)) return false;
  found.stats.launches = static_cast<int>(found.plan.launches.size());
  found.stats.cached = found.stats.kernels;
  out = std::move(found);
  return true;
}

/// Links what was compiled and stores the whole, unless another process does so at this moment.
void link_program(std::span<const std::string> objects, std::span<const std::string> names,
                  const CpuTarget& target, DiskCache* cache, const std::string& key, CompiledProgram& out,
                  BuildCost& cost) {
  FileLock claim;
  if (cache) claim = cache->claim(kPlanKind, key, true);
  CompiledProgram made_elsewhere;
  if (cache && load_program(*cache, key, true, made_elsewhere)) {
    out.plan = std::move(made_elsewhere.plan);
    out.image = std::move(made_elsewhere.image);
    return;
  }
  if (!objects.empty()) out.image = link_image(objects, names, target, cost);
  if (cache) cache->store(kPlanKind, key, pack(out.plan, out.image, out.stats.kernels));
}

}  // namespace

CompiledProgram compile_program(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                const CpuTarget& target, const LowerOptions& options, DiskCache* cache,
                                int threads, const std::function<void()>& go_on) {
  const auto start = std::chrono::steady_clock::now();
  dump("grad", [&] { return print(g); });
  const std::string key = program_key(g, layouts, target, options).str();
  CompiledProgram out;
  if (cache && load_program(*cache, key, false, out)) {
    out.stats.from_cache = true;
    // A warm start lowers nothing; who wants to see it lowered does so for that alone.
    if (dumping("partition") || dumping("loops") || dumping("source"))
      dump_sources(lower_cpu(g, layouts, target, options));
  } else {
    LoweredProgram lowered = lower_cpu(numbered_as_printed(g), layouts, target, options);
    out.stats.lower_ms = ms_since(start);
    dump_sources(lowered);
    std::vector<std::string> names;
    const std::vector<CpuSource> sources = cpu_sources(lowered.kernels, names);
    BuildCost cost;
    const std::vector<std::string> objects = make_objects(sources, target, cache, threads, cost, go_on);
    out.plan = std::move(lowered.plan);
    out.stats.kernels = static_cast<int>(sources.size());
    link_program(objects, names, target, cache, key, out, cost);
    out.stats.launches = static_cast<int>(out.plan.launches.size());
    out.stats.compiled = cost.compiled;
    out.stats.cached = cost.cached;
    out.stats.compile_ms = cost.compile_ms;
    out.stats.link_ms = cost.link_ms;
  }
  name_plan(g, out.plan);
  dump_result(out);
  out.stats.total_ms = ms_since(start);
  return out;
}

CompiledBatch compile_batch(std::span<const Graph> graphs, const CpuTarget& target,
                            const LowerOptions& options, int threads,
                            std::span<const std::vector<ExternalLayout>> layouts) {
  CompiledBatch out;
  // Many kernels to a source: most of a compile is reading the prelude.
  constexpr size_t kTogether = 24;
  std::vector<CpuSource> sources;
  std::vector<std::string> names;
  std::set<std::string> seen;
  KILN_ASSERT(layouts.empty() || layouts.size() == graphs.size(), "layouts of {} graphs for {}",
              layouts.size(), graphs.size());
  for (size_t i = 0; i < graphs.size(); ++i) {
    LoweredProgram p =
        lower_cpu(graphs[i], layouts.empty() ? std::vector<ExternalLayout>{} : layouts[i], target, options);
    out.plans.push_back(std::move(p.plan));
    name_plan(graphs[i], out.plans.back());
    for (KernelSource& k : p.kernels) {
      if (!seen.insert(k.name).second) continue;
      if (seen.size() % kTogether == 1)
        sources.push_back({fmt::format("batch_{}.cpp", sources.size()), "", {"-ffp-contract=fast"}});
      sources.back().text += k.text;
      names.insert(names.end(), k.symbols.begin(), k.symbols.end());
    }
  }
  if (!sources.empty()) out.image = build_image(sources, names, target, nullptr, threads);
  return out;
}

}  // namespace kiln
