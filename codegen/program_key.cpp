// SPDX-License-Identifier: Apache-2.0
// A key is named lines, then layouts, then the graph, so that people and `kiln cache why-miss` can compare
// two.
#include "codegen/program_key.h"

#include "codegen/compile_clang.h"
#include "codegen/compile_nvrtc.h"
#include "codegen/source_digest.h"

namespace kiln {

namespace {

constexpr std::string_view kHead = "kiln program\n";

/// Takes "NAME value\n" off the front of `text`.
bool take_line(std::string_view& text, std::string_view name, std::string& value) {
  const size_t end = text.find('\n');
  const bool named = text.starts_with(name) && text.substr(name.size()).starts_with(' ');
  if (end == std::string_view::npos || !named) return false;
  value = text.substr(name.size() + 1, end - name.size() - 1);
  text.remove_prefix(end + 1);
  return true;
}

}  // namespace

std::string LowerOptions::str() const {
  std::string s = fmt::format("fuse={}{}{}{}", fuse, combine ? "" : ", apart", tf32 ? ", tf32" : "",
                              library ? ", library" : "");
  if (!prologues) s += ", no prologues";
  if (loop_bytes != LowerOptions().loop_bytes) s += fmt::format(", loops from {}", loop_bytes);
  if (one_thread) s += ", one thread";
  for (const auto& [kernel, schedule] : schedules) s += fmt::format(", {} {}", kernel, schedule);
  return s;
}

std::string ProgramKey::str() const {
  return fmt::format("{}sources {}\ncompiler {}\ntarget {}\noptions {}\n{}{}", kHead, sources, compiler,
                     target, options, layouts, graph);
}

std::string layout_str(const ExternalLayout& layout) {
  std::string out = "layout " + layout.offset.str();
  for (const Dim& d : layout.strides) out += "; " + d.str();
  return out;
}

ProgramKey program_key(const Graph& g, const std::vector<ExternalLayout>& layouts, const Target& target,
                       const LowerOptions& options, bool machine_code) {
  LowerOptions own = options;
  std::string compiler = "sources alone";
  if (const auto* cpu = std::get_if<CpuTarget>(&target)) {
    compiler = compiler_key(*cpu);
    own.tf32 = own.library = false;  // mean nothing there
  } else if (machine_code) {
    compiler = nvrtc_key(std::get<CudaTarget>(target).arch);
  }
  ProgramKey key{detail::kSourceDigest, std::move(compiler), kiln::str(target), own.str(), {}, {}};
  for (char& c : key.compiler)
    if (c == '\n') c = ' ';
  for (const ExternalLayout& l : layouts) key.layouts += layout_str(l) + "\n";
  key.graph = print(g, {.origins = false, .canonical = true});
  return key;
}

bool parse_program_key(std::string_view text, ProgramKey& out) {
  if (!text.starts_with(kHead)) return false;
  text.remove_prefix(kHead.size());
  if (!take_line(text, "sources", out.sources) || !take_line(text, "compiler", out.compiler) ||
      !take_line(text, "target", out.target) || !take_line(text, "options", out.options))
    return false;
  const size_t graph = text.find("graph ");
  if (graph == std::string_view::npos) return false;
  out.layouts = text.substr(0, graph);
  out.graph = text.substr(graph);
  return true;
}

}  // namespace kiln
