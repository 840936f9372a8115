// SPDX-License-Identifier: Apache-2.0
#include "ir/split_buckets.h"

#include <algorithm>

#include "ir/base/log.h"

namespace kiln {

namespace {

/// One of its results is read by an op behind it, or outside all ops.
bool is_read_outside(const BucketTable::Bucket& b, std::span<const SplitOp> ops) {
  for (int i = b.begin; i < b.end; ++i) {
    const SplitOp& o = ops[static_cast<size_t>(i)];
    if (o.output || std::any_of(o.users.begin(), o.users.end(), [&](int user) { return user >= b.end; }))
      return true;
  }
  return false;
}

using Row = std::vector<std::string>;

std::string rule(const std::vector<size_t>& widths, const char* left, const char* middle, const char* right) {
  std::string line = left;
  for (size_t c = 0; c < widths.size(); ++c) {
    if (c > 0) line += middle;
    for (size_t i = 0; i < widths[c] + 2; ++i) line += "─";
  }
  return line + right;
}

/// The grid of Python's tabulate: numbers to the right, text to the left; columns two wider than their heads.
std::string grid(const Row& head, const std::vector<bool>& text, const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (size_t c = 0; c < head.size(); ++c) {
    widths.push_back(head[c].size() + 2);
    for (const Row& r : rows) widths[c] = std::max(widths[c], r[c].size());
  }
  const auto line = [&](const Row& r) {
    std::string out;
    for (size_t c = 0; c < r.size(); ++c)
      out += text[c] ? fmt::format("│ {:<{}} ", r[c], widths[c]) : fmt::format("│ {:>{}} ", r[c], widths[c]);
    return out + "│";
  };
  std::string out = rule(widths, "┌", "┬", "┐") + "\n" + line(head);
  for (const Row& r : rows) out += "\n" + rule(widths, "├", "┼", "┤") + "\n" + line(r);
  return out + "\n" + rule(widths, "└", "┴", "┘");
}

}  // namespace

std::string BucketTable::to_string() const {
  std::vector<Row> rows;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& b = buckets[buckets.size() - 1 - i];
    for (const std::string& p : b.params) {
      if (&p == b.params.data()) rows.push_back({std::to_string(i), std::to_string(b.bytes), p});
      else rows.push_back({"", "", p});
    }
  }
  return grid({"Index", "Size (b)", "Param Names"}, {false, false, true}, rows);
}

std::string BucketTable::extensions() const {
  std::vector<Row> rows;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& b = buckets[buckets.size() - 1 - i];
    if (b.extra_ops > 0)
      rows.push_back(
          {std::to_string(i), std::to_string(b.extra_ops), std::to_string(b.bytes - b.full_bytes)});
  }
  if (rows.empty()) return "";
  return grid({"Index", "Extra Ops", "Extra Param Size (b)"}, {false, false, false}, rows);
}

std::string BucketTable::reason(size_t b) const {
  const std::string line = buckets[b].loc.str();
  return fmt::format(
      "{}partition {} of {}, cut at gradient buckets of {} bytes (CompileOptions::split; leave it unset to "
      "compile one graph)",
      line.empty() ? "" : line + ": ", b + 1, buckets.size(), options.cap);
}

void BucketTable::log() const {
  const bool any =
      std::any_of(buckets.begin(), buckets.end(), [](const Bucket& b) { return !b.params.empty(); });
  if (!any) {
    kiln::log(LogLevel::debug, "split: no parameters, the graph is not split");
    return;
  }
  kiln::log(LogLevel::info, "split: bucket cap {} bytes, {} buckets", options.cap, buckets.size());
  kiln::log(LogLevel::debug, "split: the buckets:\n{}", to_string());
  const std::string extended = extensions();
  if (!extended.empty())
    kiln::log(
        LogLevel::warn,
        "split: buckets were extended beyond their caps, since each partition needs a result that others "
        "read (ops that only write in place have none):\n{}",
        extended);
}

BucketTable split_at_buckets(std::span<const SplitOp> ops, std::span<const SplitParam> params,
                             const SplitOptions& options) {
  KILN_CHECK(
      options.first <= options.cap, invalid,
      "split: the first bucket should not be larger than the others; got a first cap of {} bytes and a "
      "cap of {}",
      options.first, options.cap);
  const auto end = static_cast<int>(ops.size());
  std::vector<BucketTable::Bucket> backward(1);  // the open one is the last
  backward[0].begin = backward[0].end = end;
  for (int i = end - 1; i >= 0; --i) {
    const SplitOp& o = ops[static_cast<size_t>(i)];
    BucketTable::Bucket* open = &backward.back();
    if (open->bytes >= options.cap || (backward.size() == 1 && open->bytes >= options.first)) {
      if (is_read_outside(*open, ops)) {
        open = &backward.emplace_back();
        open->end = i + 1;
      } else if (++open->extra_ops == 1) {
        open->full_bytes = open->bytes;
      }
    }
    open->begin = i;
    for (int i : o.params) {
      const SplitParam& p = params[static_cast<size_t>(i)];
      if (std::count(options.ignored.begin(), options.ignored.end(), p.name)) continue;
      open->bytes += p.bytes;
      open->params.push_back(p.name);
    }
  }
  if (backward.size() > 1 && backward.back().bytes == 0) {
    backward[backward.size() - 2].begin = backward.back().begin;
    backward.pop_back();
  }
  for (BucketTable::Bucket& b : backward)
    if (b.begin < end) b.loc = ops[static_cast<size_t>(b.begin)].loc;
  return {options, {backward.rbegin(), backward.rend()}};
}

}  // namespace kiln
