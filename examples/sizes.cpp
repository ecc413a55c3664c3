// The memory that parts of a program own: measuring functions, for classes with and without
// inheritance, and a reporter.
//
//     crates/process/capi/install ~/.local
//     export PKG_CONFIG_PATH=~/.local/lib/pkgconfig LD_LIBRARY_PATH=~/.local/lib
//     c++ -g examples/sizes.cpp -o sizes $(pkg-config --cflags --libs heapledger)
//     ./sizes
//     heapledger reports show sizes.json.gz
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "heapledger/containers.hpp"

using heapledger::MallocSizeOf;
using heapledger::SizeOfExcludingThis; // for types of the standard library
using heapledger::SizeOfIncludingThis;

// ---------------------------------------------------------------------------------- a simple class

// A text of its own. It owns one block, and the allocator is asked for its size: `sizeof` is not
// used.
class Text {
  public:
    explicit Text(const char *text) : buffer_(static_cast<char *>(std::malloc(std::strlen(text) + 1))) {
        if (buffer_ != nullptr) std::strcpy(buffer_, text);
    }
    Text(const Text &) = delete;
    Text &operator=(const Text &) = delete;
    ~Text() { std::free(buffer_); }

    // For a Text that is a member of something, or an element.
    std::size_t SizeOfExcludingThis(MallocSizeOf malloc_size_of) const { return malloc_size_of(buffer_); }
    // For a Text that `new` made, which is a block itself. Always of this form.
    std::size_t SizeOfIncludingThis(MallocSizeOf malloc_size_of) const {
        return malloc_size_of(this) + SizeOfExcludingThis(malloc_size_of);
    }

  private:
    char *buffer_;
};

// ------------------------------------------------------------------------------ single inheritance

class Shape {
  public:
    explicit Shape(const char *name) : name_(name) {}
    virtual ~Shape() {}

    // Virtual, so that a pointer to a Shape measures what it points to.
    virtual std::size_t SizeOfExcludingThis(MallocSizeOf malloc_size_of) const {
        return name_.SizeOfExcludingThis(malloc_size_of);
    }
    // Not virtual: block_of finds the beginning of the whole object, so all derived classes share
    // this one.
    std::size_t SizeOfIncludingThis(MallocSizeOf malloc_size_of) const {
        return malloc_size_of(heapledger::block_of(this)) + SizeOfExcludingThis(malloc_size_of);
    }

  private:
    Text name_; // not a block: it is within the Shape
};

// Owns no more than a Shape does, so it adds no function.
class Circle : public Shape {
  public:
    explicit Circle(double radius) : Shape("circle"), radius_(radius) {}
    double area() const { return 3.14 * radius_ * radius_; }

  private:
    double radius_;
};

class Polygon : public Shape {
  public:
    explicit Polygon(std::size_t corners) : Shape("a polygon with a long name"), corners_(2 * corners) {}

    // The memory that a Shape owns, and the corners.
    std::size_t SizeOfExcludingThis(MallocSizeOf malloc_size_of) const override {
        return Shape::SizeOfExcludingThis(malloc_size_of) + ::SizeOfExcludingThis(corners_, malloc_size_of);
    }

  private:
    std::vector<double> corners_;
};

// ----------------------------------------------------------------- several bases, and virtual ones

class Listener {
  public:
    virtual ~Listener() {}
    virtual void changed() {}
};

// Here a pointer to the Shape is not the beginning of the block, and malloc_size_of(this) in Shape
// would ask for the size of an address inside a block. block_of(this) finds the beginning.
class Button : public Listener, public Shape {
  public:
    Button() : Shape("button"), label_(new Text("press here, if you like")) {}

    std::size_t SizeOfExcludingThis(MallocSizeOf malloc_size_of) const override {
        return Shape::SizeOfExcludingThis(malloc_size_of) + ::SizeOfExcludingThis(label_, malloc_size_of);
    }

  private:
    std::unique_ptr<Text> label_; // owned: the Text and its buffer
};

// A diamond: a Link has one Node, which the most derived class measures, once.
class Node {
  public:
    virtual ~Node() {}
    virtual std::size_t SizeOfExcludingThis(MallocSizeOf malloc_size_of) const {
        return ::SizeOfExcludingThis(tags_, malloc_size_of);
    }
    std::size_t SizeOfIncludingThis(MallocSizeOf malloc_size_of) const {
        return malloc_size_of(heapledger::block_of(this)) + SizeOfExcludingThis(malloc_size_of);
    }
    std::vector<std::string> tags_;
};

class Source : public virtual Node {
  protected:
    // Only what a Source adds, for classes that derive from it.
    std::size_t SizeOfSource(MallocSizeOf malloc_size_of) const { return ::SizeOfExcludingThis(out_, malloc_size_of); }
    std::vector<int> out_ = std::vector<int>(10);
};

class Sink : public virtual Node {
  protected:
    std::size_t SizeOfSink(MallocSizeOf malloc_size_of) const { return ::SizeOfExcludingThis(in_, malloc_size_of); }
    std::vector<int> in_ = std::vector<int>(20);
};

class Link : public Source, public Sink {
  public:
    std::size_t SizeOfExcludingThis(MallocSizeOf malloc_size_of) const override {
        return Node::SizeOfExcludingThis(malloc_size_of) + SizeOfSource(malloc_size_of) + SizeOfSink(malloc_size_of);
    }
};

// -------------------------------------------------------------- sizes that add, and what is shared

// An image, which several layers may show.
class Image {
  public:
    explicit Image(std::size_t bytes) : pixels_(bytes) {}
    std::size_t SizeOfExcludingThis(MallocSizeOf malloc_size_of) const {
        return ::SizeOfExcludingThis(pixels_, malloc_size_of);
    }

  private:
    std::vector<unsigned char> pixels_;
};

// Measurements that are shown separately. The fields begin at zero, and are added to: so several
// scenes can be summed.
struct SceneSizes {
    std::size_t shapes = 0;
    std::size_t graph = 0;
    std::size_t images = 0;
    std::size_t index = 0;
};

class Scene {
  public:
    Scene() {
        for (int number = 0; number < 100; number++) {
            shapes_.emplace_back(new Circle(number));
            shapes_.emplace_back(new Polygon(static_cast<std::size_t>(number)));
            shapes_.emplace_back(new Button);
            index_["shape " + std::to_string(number) + ", a circle"] = shapes_[shapes_.size() - 3].get();
        }
        for (int number = 0; number < 10; number++) {
            graph_.emplace_back(new Link);
            graph_.back()->tags_.assign(3, "a tag that is not short");
        }
        const auto image = std::make_shared<Image>(10000);
        for (int layer = 0; layer < 5; layer++) layers_[layer] = image;
        layers_[5] = std::shared_ptr<Image>(new Image(500));
    }

    void AddSizeOfExcludingThis(MallocSizeOf malloc_size_of, SceneSizes *sizes) const {
        std::lock_guard<std::mutex> guard{lock_};
        sizes->shapes += ::SizeOfExcludingThis(shapes_, malloc_size_of);
        sizes->graph += ::SizeOfExcludingThis(graph_, malloc_size_of);
        // The pointers in the index own nothing: plain pointers are never followed.
        sizes->index += ::SizeOfExcludingThis(index_, malloc_size_of);
        // Each image once, however many layers show it.
        heapledger::visited seen;
        sizes->images += heapledger::SizeOfExcludingThis(
            layers_, malloc_size_of, [&seen](const std::pair<const int, std::shared_ptr<Image>> &layer, MallocSizeOf size_of) {
                return heapledger::SharedSizeOf(layer.second, size_of, seen);
            });
    }
    std::size_t shapes() const {
        std::lock_guard<std::mutex> guard{lock_};
        return shapes_.size();
    }

  private:
    mutable std::mutex lock_;
    std::vector<std::unique_ptr<Shape>> shapes_;
    std::vector<std::unique_ptr<Node>> graph_;
    std::map<int, std::shared_ptr<Image>> layers_;
    std::unordered_map<std::string, Shape *> index_;
};

// -------------------------------------------------------------------------------------- a reporter

// Each reporter has a function of its own: by it the ledger knows which reporter has reported a
// block.
HEAPLEDGER_DEFINE_MALLOC_SIZE_OF(scene_size_of, "explicit/scene")

// A global object, so its reporter is a separate object. If an object is the only one of its kind,
// the reporter is better a member of it.
static std::unique_ptr<Scene> scene;

static heapledger::reporter scene_reporter{"explicit/scene", [](const heapledger::collector &collector) {
    if (scene == nullptr) return;
    SceneSizes sizes;
    scene->AddSizeOfExcludingThis(scene_size_of, &sizes);
    collector.heap("scene", scene_size_of(scene.get()), "The scene itself.");
    collector.heap("shapes", sizes.shapes, "Shapes of all kinds, and their names.");
    collector.heap("graph", sizes.graph, "What is linked to what.");
    collector.heap("images", sizes.images, "Pixels. An image that several layers show is counted once.");
    collector.heap("index", sizes.index, "Names by which shapes are found.");
    collector.count("/scene-shapes", scene->shapes(), "Shapes in the scene.");
}};

// --------------------------------------------------------------------------------------- is it so?

static int add(const heapledger_block *block, void *sum) {
    *static_cast<std::size_t *>(sum) += block->bytes_usable;
    return 0;
}

int main() {
    if (heapledger_start(nullptr) != HEAPLEDGER_OK) std::fputs("no ledger here\n", stderr);
    scene.reset(new Scene);
    std::size_t live = 0;
    heapledger_blocks(add, &live);

    SceneSizes sizes;
    scene->AddSizeOfExcludingThis(heapledger_malloc_size_of, &sizes);
    const std::size_t itself = heapledger_malloc_size_of(scene.get());
    std::printf("shapes    %zu bytes\ngraph     %zu bytes\nimages    %zu bytes\nindex     %zu bytes\n", sizes.shapes,
                sizes.graph, sizes.images, sizes.index);
    std::printf("measured  %zu bytes\nlive      %zu bytes\n",
                itself + sizes.shapes + sizes.graph + sizes.images + sizes.index, live);
    if (heapledger_save_reports("sizes.json.gz", nullptr) == HEAPLEDGER_OK) std::puts("saved     sizes.json.gz");
    scene.reset();
}
