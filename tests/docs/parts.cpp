// What the parts of programs in C++ on pages take for granted: blocks.py puts the block of a page
// with `<!-- part: NAME -->` in the place of the line that has PART(NAME) here, and compiles the
// whole. Nothing of it is linked or run.
#include <tutti/parallel/checkpoint/checkpoint.h>
#include <tutti/parallel/checkpoint/engine.h>
#include <tutti/parallel/data_parallel/data_parallel.h>
#include <tutti/parallel/domain/halo.h>
#include <tutti/parallel/expert/expert_parallel.h>
#include <tutti/parallel/gpu.h>
#include <tutti/parallel/hybrid/shared_gradients.h>
#include <tutti/parallel/mesh.h>
#include <tutti/parallel/pipeline/execute.h>
#include <tutti/parallel/pipeline/generate.h>
#include <tutti/parallel/reshard/buffers.h>
#include <tutti/parallel/reshard/reshard.h>
#include <tutti/parallel/sequence/attention.h>
#include <tutti/parallel/sharded/sharded.h>
#include <tutti/parallel/tensor/linear.h>
#include <tutti/parallel/weights/receiver.h>
#include <tutti/parallel/weights/sender.h>
#include <tutti/tutti.h>

#include <cmath>

using tutti::Communicator;
using tutti::DataType;

// --- The library ---

struct State {
  int step = 0;
};
void take_state(Communicator& comm, State& state);
void train(Communicator& comm, State& state);

void the_elastic_loop(int steps) {
  // PART(elastic)
}

void compressed(Communicator& comm, const void* in, void* out, std::size_t count) {
  // PART(compressed)
}

void publish(const std::string& handle);
std::vector<std::string> agreed_list();

void reconfigured(std::int64_t number) {
  // PART(reconfigure)
}

void members(Communicator& comm, const tutti::UniqueId& id) {
  // PART(grow)
}

void newcomers(const tutti::UniqueId& id) {
  // PART(join)
}

void one_sided(Communicator& comm, int left, int right, const void* edge, std::size_t bytes) {
  // PART(window)
}

void resharded(Communicator& comm) {
  // PART(reshard)
}

// --- Engines ---

using namespace tutti::parallel;

void checkpointed(Axis& world_axis, ShardedDataParallel& model, const Optimizer& adamw,
                  const PlaceOf& places, std::uint64_t last, const std::string& loss) {
  // PART(checkpoint)
}

void exported(const std::function<std::string(const std::string&)>& name_of) {
  // PART(export)
}

void with_error_feedback() {
  // PART(eight_bits)
}

void shards_of_eight_bits() {
  // PART(reduce_eight_bits)
}

void on_a_gpu(CommunicatorAxis& axis, void* stream) {
  // PART(gpu)
}

void a_mesh(Communicator& world) {
  // PART(mesh)
}

void replicas(Mesh& mesh, std::span<void* const> pointers, int steps, std::size_t i) {
  // PART(data_parallel)
}

void sharded(const std::vector<Unit>& units, Axis& axis, const Optimizer& adamw, std::size_t u,
             std::size_t p, const std::vector<const void*>& values) {
  // PART(sharded)
}

void saved_shards(ShardedDataParallel& model, const Optimizer& adamw, std::size_t u, std::size_t p,
                  std::uint64_t steps) {
  // PART(sharded_saved)
}

void two_layers(Mesh& mesh, std::size_t width, std::size_t hidden, std::size_t rows, const void* x,
                const void* dy, void* h, void* y, void* dh, void* dx, void* w1, void* b1, void* w2,
                void* b2, void* dw1, void* db1, void* dw2, void* db2) {
  // PART(linear)
}

void pairs(Axis& axis, const void* x, void* y, std::size_t outer, std::size_t length,
           std::size_t inner, DataType type) {
  using namespace tensor;
  // PART(mapper)
}

void a_ring(Mesh& mesh, const sequence::AttentionShape& shape, const sequence::Kernel& kernel,
            const void* q, const void* k, const void* v, void* out,
            sequence::ContextParallelAttention::Saved& saved, const void* dout, void* dq, void* dk,
            void* dv) {
  // PART(ring)
}

void nested(Mesh& mesh, const sequence::Kernel& kernel, const void* q, const void* k, const void* v,
            void* out, sequence::ContextParallelAttention::Saved& saved, const void* dout, void* dq,
            void* dk, void* dv, const std::vector<float>& input, std::vector<float>& x) {
  // PART(attention)
}

void with_data_parallel(Communicator& world, const std::vector<Parameter>& parameters) {
  // PART(sequence_data)
}

void routed_tokens(Axis& axis, const void* logits, std::size_t tokens, DataType type,
                   expert::Routed& routed, std::span<const double> dweights, double scale,
                   void* dlogits) {
  // PART(router)
}

void experts(Mesh& mesh, expert::Router& router, const void* logits, std::size_t tokens,
             DataType type, expert::Routed& routed, const void* x,
             const expert::Forward& run_expert, void* y, expert::Saved& saved, const void* dy,
             const expert::Backward& run_expert_backward, void* dx, std::vector<double>& dweights,
             const expert::Balance& balance, double scale, void* dlogits) {
  // PART(experts)
}

void experts_with_data(Communicator& world) {
  // PART(expert_data)
}

void halos(Communicator& world, std::size_t samples, std::size_t channels, void* x,
           void (*compute)(const domain::Box& box)) {
  using namespace domain;
  // PART(halo)
}

void halos_in_short(domain::Halo& halo, void* x, void (*compute)(const domain::Box& box)) {
  using namespace domain;
  // PART(halo_in_short)
}

void blocks_of_a_field() {
  using namespace domain;
  // PART(blocks)
}

void stages_of_a_pipeline(Mesh& mesh, int ranks, int micro_batches, int steps,
                          const std::vector<std::size_t>& bytes_between_stages) {
  pipeline::Stages stages;
  // PART(pipeline)
}

void split_backwards(Communicator& comm, int ranks, int micro_batches, int steps,
                     const std::vector<std::size_t>& bytes_between_stages) {
  // PART(split_backwards)
}

void a_hybrid(Communicator& world) {
  // PART(hybrid)
}

void hybrid_steps(Mesh& mesh, std::vector<Unit>& units,
                  const std::vector<SharedParameter>& parameters, std::size_t u, std::size_t p,
                  std::size_t i, std::vector<SharedGradients::Run>& masters,
                  std::vector<SharedGradients::Run>& gradients, pipeline::Executor& executor,
                  std::span<Axis* const> axes, const Optimizer& adamw, int steps) {
  double norm = 0;
  // PART(shared_gradients)
}

void sends_weights(Communicator& comm, const reshard::Layout& layout,
                   const std::vector<const void*>& sources, std::uint64_t steps) {
  using namespace weights;
  // PART(weight_sender)
}

void serve(std::span<void* const> pointers);

void receives_weights(Communicator& comm, const reshard::Layout& layout) {
  using namespace weights;
  // PART(weight_receiver)
}
