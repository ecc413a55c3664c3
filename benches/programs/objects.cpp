// Small objects: maps, vectors, strings and shared pointers made and dropped. usage: objects
// [ROUNDS]
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

struct Record {
    std::string name;
    std::vector<int> values;
    std::shared_ptr<std::string> label;
};

int main(int count, char **arguments) {
    long rounds = count > 1 ? std::atol(arguments[1]) : 100000;
    std::map<std::string, Record> records;
    std::unordered_map<long, std::shared_ptr<std::string>> labels;
    for (long round = 0; round < rounds; round++) {
        std::string key = "record number " + std::to_string(round % 20000);
        auto &label = labels[round % 5000];
        if (!label || round % 7 == 0)
            label = std::make_shared<std::string>("the label of group " + std::to_string(round));
        Record &record = records[key];
        record.name = key + " in round " + std::to_string(round);
        record.values.assign(round % 16, round);
        record.label = label;
        if (round % 3 == 0)
            records.erase("record number " + std::to_string((round * 7) % 20000));
    }
    return records.empty();
}
