"""Refusals of media: recognised in the wordings of the providers, and told from what only sounds like one."""

import pytest

from refold.core.overflow import parse_overflow, refuses_media

REFUSALS = """messages.20.content.0.image.source.base64: image exceeds 5 MB maximum: 6808904 bytes > 5242880 bytes
Could not process image
Could not process PDF
Too much media: 0 document pages + 101 images > 100
A maximum of 100 PDF pages may be provided.
messages.1.content.0.image.source.base64.data: At least one of the image dimensions exceed max size: 8000 pixels
The image was specified using the image/png media type, but the image appears to be a image/jpeg image
messages.0.content.0.image.source.base64: invalid base64 data
The PDF specified was not valid.
The PDF specified is password protected.
You uploaded an unsupported image. Please make sure your image is valid.
The image data you provided does not represent a valid image. Please check your input and try again.
Invalid MIME type. Only image types are supported.
Invalid content type. image_url is only supported by certain models.
Failed to download image from https://example.com/a.png.
Unable to process input image. Please retry or report in the forum
Provided image is not valid.
Unsupported MIME type: image/svg+xml
The document has no pages.
Base64 decoding failed for "xx"
At most 1 image(s) may be provided in one request.
cannot identify image file <_io.BytesIO object at 0x7f>
qwen is not a multimodal model
image input is not supported - hint: if this is unexpected, you may need to provide the mmproj
Failed to load image or audio file
this model is missing data required for image input
No endpoints found that support image input
Failed to deserialize the JSON body: messages[0]: unknown variant `image_url`, expected `text`
Image input is not enabled for this model""".splitlines()

OTHERS = """Rate limit reached for images per minute: Limit 5
This model's maximum context length is 8192 tokens. However, your messages with 3 images resulted in 9000 tokens.
prompt is too long: 210000 tokens > 200000 maximum
Your request was rejected as a result of our safety system. The image is not supported by our policies.
Invalid API key provided: image
docker image not found
Overloaded
Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.
The model `gpt-image` does not exist
tool_use ids were found without tool_result blocks immediately after
messages.3: all messages must have non-empty content
Connection reset by peer
the file /data/a.txt is read""".splitlines()


class Refused(Exception):
    """An error as client libraries raise it."""

    def __init__(self, text: str, status_code: int) -> None:
        super().__init__(text)
        self.status_code = status_code


class TestRefusalsOfMedia:
    @pytest.mark.parametrize("text", REFUSALS)
    def test_fault_117_every_providers_wording_is_recognised(self, text: str) -> None:
        """With the status of a bad request or none, also as a cause; and it is no overflow."""
        wrapped = RuntimeError("the model failed")
        wrapped.__cause__ = Refused(text, 400)
        assert [refuses_media(e) for e in (ValueError(text), Refused(text, 400), wrapped)] == [True] * 3
        assert parse_overflow(Refused(text, 400)) is None

    @pytest.mark.parametrize("text", OTHERS)
    def test_what_only_sounds_like_one_is_none(self, text: str) -> None:
        """Rate limits, lengths, policies, keys, containers, pairing: nothing there is mended without a picture."""
        assert not refuses_media(ValueError(text))

    @pytest.mark.parametrize("status", [401, 403, 429, 502, 503, 529])
    def test_a_status_that_no_request_could_change_is_none(self, status: int) -> None:
        """Whatever its text says."""
        assert not refuses_media(Refused("Could not process image", status))
