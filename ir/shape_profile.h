// SPDX-License-Identifier: Apache-2.0
// Shape profiles: what calls have shown of the tensors and integers at one place of a program, so that a size
// that varies is compiled as a symbol at once, on every rank. A join semilattice with a text form; knows no
// tensor and no group. Source: PyTorch, torch._dynamo.pgo (FrameStateSizeEntry).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// What is known of one number: unset < a value < dynamic.
struct ProfileInt {
  enum class Kind : uint8_t {
    unset,          ///< nothing: the identity of join
    value,          ///< always `value`
    contiguous_of,  ///< a stride that was size * stride of dim `value`
    dynamic,        ///< it varies: absorbs everything
  };
  Kind kind = Kind::unset;
  int64_t value = 0;
  bool operator==(const ProfileInt&) const = default;
};

/// What is known of the sizes or strides of a tensor.
struct ProfileDims {
  /// `value`: of the dims below; `dynamic`: even their number varies.
  ProfileInt::Kind kind = ProfileInt::Kind::unset;
  std::vector<ProfileInt> dims;
  bool operator==(const ProfileDims&) const = default;
};

/// What is known of one name: a tensor has sizes and strides, an integer a scalar; what the other has is
/// dynamic, so that a name that is both at different times joins to dynamic.
struct ShapeProfile {
  ProfileInt scalar;
  ProfileDims size, stride;
  /// The scalar that the last join turned dynamic: a program for the special value may be kept and preferred.
  std::optional<int64_t> excluded_scalar;
  /// The sizes before the last join that turned some of them dynamic; empty elements were dynamic already.
  std::optional<std::vector<std::optional<int64_t>>> excluded_sizes;

  /// Strides that are size * stride of a dim before them, in order of stride and then of descending dim, are
  /// kept as that: joining (2,3) and (2,4) then leaves one symbol, not two. Units: elements.
  static ShapeProfile of_tensor(std::span<const int64_t> sizes, std::span<const int64_t> strides);
  static ShapeProfile of_integer(int64_t value);

  /// The least profile above this one and `later`. Commutative and associative but for what is excluded,
  /// which is of the last join.
  void join(const ShapeProfile& later);
  bool is_size_dynamic(size_t dim) const;
  /// Strides count as dynamic only where all sizes are static.
  bool is_stride_dynamic(size_t dim) const;
  bool operator==(const ShapeProfile&) const = default;
};

/// The names of one place and what is known of them.
using ShapeProfiles = std::map<std::string, ShapeProfile>;

/// Joins what all ranks have of each name, in the order of ranks; a rank need not have every name.
ShapeProfiles merge_profiles(std::span<const ShapeProfiles> ranks);

/// One line per name: `"x" scalar=* size=[2,*] stride=[@1,1] excluded_sizes=[2,3]`, where * is dynamic, ? is
/// unset, @1 is contiguous of dim 1, and _ is an empty element.
std::string print_profiles(const ShapeProfiles& profiles);
/// Inverse of print_profiles. Throws: invalid, with line and column.
ShapeProfiles parse_profiles(std::string_view text);

}  // namespace kiln
