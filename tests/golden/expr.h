// SPDX-License-Identifier: Apache-2.0
// Parses the Python expressions of ops.json into a tree, so that each case runs exactly what PyTorch ran.
// Only syntax: calls, attributes, subscripts, operators and literals. Evaluates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::golden {

struct Node;
using NodePtr = std::unique_ptr<Node>;

/// One node of an expression.
struct Node {
  enum class Kind {
    integer,    ///< `integer`
    real,       ///< `real`
    string,     ///< `text`
    name,       ///< `text`, dotted names joined where the root is torch, F or math: "torch.sum"
    attribute,  ///< kids[0] . text
    call,       ///< kids[0] ( kids[1..] ); keywords[i] names kids[i + 1], "" for a position
    subscript,  ///< kids[0] [ kids[1..] ]
    slice,      ///< kids = begin, end, step; null where left out
    ellipsis,
    tuple,   ///< kids
    list,    ///< kids
    unary,   ///< text = - ~
    binary,  ///< text, kids[0], kids[1]
  };
  Kind kind = Kind::integer;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<NodePtr> kids;
  std::vector<std::string> keywords;
};

/// Parses `source`. A comma at the top makes a tuple. Throws: unsupported, at syntax outside the subset.
NodePtr parse_expression(std::string_view source);

/// The tree as an S-expression, for tests.
std::string to_string(const Node& node);

}  // namespace kiln::golden
