import openai
import pytest


def test_lists_the_served_model(client, model):
    models = client.models.list().data
    assert [entry.id for entry in models] == [model]
    assert models[0].object == "model"
    assert models[0].created > 1_600_000_000


def test_retrieves_a_model(client, model):
    assert client.models.retrieve(model).id == model


def test_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("no-such-model")
    assert raised.value.code == "model_not_found"
