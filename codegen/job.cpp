// SPDX-License-Identifier: Apache-2.0
// A job as text: a line with checksum and size of the rest, the recording Kiln, then each program as counted
// lines and the text of its graph. The user's lines and module paths are the graph's comments.
#include "codegen/job.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "codegen/program_key.h"
#include "codegen/source_digest.h"
#include "ir/base/atomic_file.h"
#include "ir/base/error.h"
#include "ir/base/file_lock.h"
#include "ir/base/hash.h"
#include "ir/base/log.h"
#include "ir/base/text.h"

namespace kiln {

namespace {

constexpr std::string_view kMagic = "kiln job ";
constexpr std::string_view kFormat = "2";

std::string one_line(std::string s) {
  for (char& c : s)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return s;
}

/// What the program compiles to, for a given target: two of one identity are one.
std::string identity(const JobProgram& p) {
  std::string text = p.options.str() + "\n";
  for (const ExternalLayout& l : p.layouts) text += layout_str(l) + "\n";
  return hash128(text + print(p.graph, {.origins = false, .canonical = true})).hex();
}

/// The graph's text, its node lines followed by "// line module/path".
std::string graph_text(const JobProgram& p) {
  const std::string text = print(p.graph, {.origins = false});
  std::string out;
  size_t node = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string_view line = std::string_view(text).substr(at, end - at);
    out += line;
    if (line.starts_with("  %") && line.find(" = input ") == std::string_view::npos) {
      const int32_t scope = p.graph.nodes[node].origin.scope;
      const std::string& user = p.lines[node++];
      if (!user.empty() || scope >= 0)
        out += fmt::format("  // {} {}", user, scope >= 0 ? p.graph.scopes[static_cast<size_t>(scope)] : "");
    }
    out += '\n';
    at = end + 1;
  }
  return out;
}

/// Takes the comments of graph_text back.
void read_origins(std::string_view text, JobProgram& p) {
  p.lines.assign(p.graph.nodes.size(), "");
  size_t node = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with("  %") || line.find(" = input ") != std::string_view::npos) continue;
    if (node == p.graph.nodes.size()) return;
    const size_t comment = line.find("  // ");
    if (comment != std::string_view::npos) {
      const std::string_view words = line.substr(comment + 5);
      const size_t space = std::min(words.find(' '), words.size());
      p.lines[node] = words.substr(0, space);
      if (space + 1 < words.size())
        p.graph.nodes[node].origin.scope = p.graph.intern_scope(std::string(words.substr(space + 1)));
    }
    ++node;
  }
}

std::string print_program(const JobProgram& p) {
  const std::string graph = graph_text(p);
  std::string out =
      fmt::format("program {}\nthreads {}\nends {}\nfuse {:d}\ntf32 {:d}\nlibrary {:d}\nlayouts {}\n",
                  one_line(p.name), fmt::join(p.threads, " "), one_line(p.ends), p.options.fuse,
                  p.options.tf32, p.options.library, p.layouts.size());
  for (const ExternalLayout& l : p.layouts) out += layout_str(l) + "\n";
  return out + fmt::format("graph {}\n", graph.size()) + graph;
}

/// Reads the text behind its checksum: a fault here is a recorder's, not the disk's.
class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool at_end() const { return text_.empty(); }
  std::string word(std::string_view key) {
    const size_t end = text_.find('\n');
    if (end == std::string_view::npos || !text_.starts_with(key) || text_.substr(key.size(), 1) != " ")
      fail(fmt::format("a line '{} ...'", key));
    std::string out(text_.substr(key.size() + 1, end - key.size() - 1));
    text_.remove_prefix(end + 1);
    return out;
  }
  int64_t number(std::string_view key) { return parse(word(key), key); }
  /// At least one.
  std::set<int> numbers(std::string_view key) {
    std::set<int> out;
    for (const std::string& w : split(word(key), ' ')) out.insert(static_cast<int>(parse(w, key)));
    if (out.empty() || *out.begin() < 1) fail(fmt::format("numbers above 0 for '{}'", key));
    return out;
  }
  std::string_view bytes(int64_t n) {
    if (static_cast<uint64_t>(n) > text_.size()) fail(fmt::format("{} bytes of graph", n));
    const std::string_view out = text_.substr(0, static_cast<size_t>(n));
    text_.remove_prefix(static_cast<size_t>(n));
    return out;
  }
  ExternalLayout layout() {
    std::vector<Dim> dims;
    const std::string w = word("layout");
    for (size_t at = 0; at <= w.size();) {
      const size_t end = std::min(w.find(';', at), w.size());
      dims.push_back(parse_dim(std::string_view(w).substr(at, end - at)));
      at = end + 1;
    }
    return {{dims.begin() + 1, dims.end()}, dims[0]};
  }

 private:
  int64_t parse(const std::string& w, std::string_view key) const {
    int64_t n = 0;
    const auto [end, ec] = std::from_chars(w.data(), w.data() + w.size(), n);
    if (ec != std::errc() || end != w.data() + w.size() || n < 0) fail(fmt::format("a number for '{}'", key));
    return n;
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error(ErrorKind::io, fmt::format("{}: not a job that Kiln wrote; expected {}", name_, expected));
  }
  std::string_view text_;
  const std::string& name_;
};

JobProgram read_program(Reader& r) {
  JobProgram p;
  p.name = r.word("program");
  p.threads = r.numbers("threads");
  p.ends = r.word("ends");
  p.options.fuse = r.number("fuse") == 1;
  p.options.tf32 = r.number("tf32") == 1;
  p.options.library = r.number("library") == 1;
  for (int64_t n = r.number("layouts"); n > 0; --n) p.layouts.push_back(r.layout());
  const std::string_view text = r.bytes(r.number("graph"));
  p.graph = parse_graph(text);
  read_origins(text, p);
  return p;
}

std::string read_file(const std::string& path) {
  std::error_code ec;
  const auto kind = std::filesystem::status(path, ec).type();  // a pipe would be waited for
  KILN_CHECK(kind == std::filesystem::file_type::regular, io, "{}: {}", path,
             ec ? ec.message() : "not a file");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  KILN_CHECK(in.is_open() && !in.bad(), io, "{}: {}", path, std::strerror(errno ? errno : EIO));
  KILN_CHECK(!text.empty(), io, "{}: the file is empty; expected a job recorded with KILN_RECORD", path);
  return text;
}

std::string sealed(const std::string& body) {
  return fmt::format("{}{} {} {}\n", kMagic, kFormat, hash128(body).hex(), body.size()) + body;
}

}  // namespace

std::vector<std::string> node_lines(const Graph& g) {
  std::vector<std::string> out;
  for (const Node& n : g.nodes) out.push_back(n.origin.loc.str());
  return out;
}

std::string kiln_identity() {
  return fmt::format("{} (sources {:.12})", KILN_VERSION, std::string_view(detail::kSourceDigest));
}

std::string print_job(const Job& job) {
  std::string body = fmt::format("recorder {}\n", kiln_identity());
  for (const JobProgram& p : job.programs) body += print_program(p);
  return sealed(body);
}

Job parse_job(std::string_view text, const std::string& name) {
  const size_t end = text.find('\n');
  std::string format, check;
  size_t size = 0;
  KILN_CHECK(text.starts_with(kMagic) && end != std::string_view::npos, io,
             "{}: not a job file; expected one recorded with KILN_RECORD", name);
  std::istringstream head(std::string(text.substr(kMagic.size(), end - kMagic.size())));
  head >> format >> check >> size;
  KILN_CHECK(
      format == kFormat, invalid,
      "{}: a job of format {}; this is Kiln {}, which reads format {} (record it again with this Kiln)", name,
      format, kiln_identity(), kFormat);
  const std::string_view body = text.substr(end + 1);
  KILN_CHECK(body.size() >= size, io, "{}: the job is cut short; got {} of {} bytes (record it again)", name,
             body.size(), size);
  KILN_CHECK(body.size() == size && hash128(body).hex() == check, io,
             "{}: the job is damaged: its checksum differs (record it again)", name);
  Reader r(body, name);
  const std::string recorder = r.word("recorder");
  KILN_CHECK(
      recorder == kiln_identity(), invalid,
      "{}: recorded by Kiln {}; this is Kiln {}, whose keys differ (record it again with a program built "
      "with this Kiln, or use the kiln program of that one)",
      name, recorder, kiln_identity());
  Job job;
  while (!r.at_end()) job.programs.push_back(read_program(r));
  return job;
}

Job read_job(const std::string& path) { return parse_job(read_file(path), path); }

JobRecorder::JobRecorder(const std::string& path) {
  std::error_code ec;
  if (!path.empty()) path_ = std::filesystem::absolute(path, ec).string();
  if (ec) path_ = path;
}

void JobRecorder::record(const JobProgram& program) {
  const std::lock_guard guard(mutex_);
  if (path_.empty() || failed_) return;
  try {
    const std::string id = identity(program);
    if (!knows(id, program.threads)) add(program, id);
  } catch (const std::exception& e) {
    log(LogLevel::warn, "KILN_RECORD: {}; going on without", e.what());
    failed_ = true;
  }
}

bool JobRecorder::knows(const std::string& id, const std::set<int>& threads) const {
  const auto at = known_.find(id);
  return at != known_.end() &&
         std::includes(at->second.begin(), at->second.end(), threads.begin(), threads.end());
}

void JobRecorder::add(const JobProgram& program, const std::string& id) {
  constexpr std::chrono::seconds kPatience(10);
  const FileLock lock(path_ + ".lock", kPatience);
  KILN_CHECK(lock.held(), io, "{}.lock: {}", path_, lock.why());
  std::error_code ec;
  std::string text = sealed(fmt::format("recorder {}\n", kiln_identity()));
  if (std::filesystem::exists(path_, ec)) text = read_file(path_);
  if (text != last_)  // somebody else's, which must be a job of this Kiln: nothing else is written over
    for (const JobProgram& p : parse_job(text, path_).programs)
      known_[identity(p)].merge(std::set(p.threads));
  if (!knows(id, program.threads)) {
    if (known_.count(id)) {  // on another number of threads
      Job job = parse_job(text, path_);
      for (JobProgram& p : job.programs)
        if (identity(p) == id) p.threads.insert(program.threads.begin(), program.threads.end());
      text = print_job(job);
    } else {
      text = sealed(text.substr(text.find('\n') + 1) + print_program(program));
    }
    write_file_atomically(path_, text);
  }
  known_[id].insert(program.threads.begin(), program.threads.end());
  last_ = std::move(text);
}

}  // namespace kiln
