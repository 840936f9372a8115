// SPDX-License-Identifier: Apache-2.0
// Builds the program of a stage: the interpreter, or kernels through codegen.
#include "frontend/stage.h"
#include "ir/passes.h"

namespace kiln::detail {

namespace {

/// The reference: every node by its row's evaluation; in-place outputs are copied at the end.
class InterpretedProgram : public Program {
 public:
  explicit InterpretedProgram(Graph g) : graph_(std::move(g)) {}
  void run(std::span<const HostTensor> inputs, std::span<const HostTensor> outputs) override {
    std::vector<HostTensor> in(inputs.begin(), inputs.end());
    for (size_t i = 0; i < in.size(); ++i) in[i].ref.dtype = graph_.type(graph_.inputs[i].value).dtype;
    const std::vector<HostTensor> results = interpret(graph_, in);
    // A result may share memory with an input that another result replaces: read all before writing any.
    std::vector<HostTensor> copies;
    for (const HostTensor& r : results) {
      copies.push_back(make_host_tensor(r.ref.dtype, r.ref.shape));
      copy_elements(r.ref, copies.back().ref);
    }
    for (size_t i = 0; i < outputs.size(); ++i) copy_elements(copies[i].ref, outputs[i].ref);
  }

 private:
  Graph graph_;
};

}  // namespace

std::unique_ptr<Program> build_program(const Graph& g, std::span<const Sizes> input_strides, const StageOptions& options,
                                       BuildRecord& record) {
  verify(g);
  Graph optimised = g;
  record.nodes += static_cast<int>(optimised.nodes.size());
  (void)input_strides;
  (void)options;
  return std::make_unique<InterpretedProgram>(std::move(optimised));
}

}  // namespace kiln::detail
